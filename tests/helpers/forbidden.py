"""What must not be in anything that students get."""

import json
import tomllib
from pathlib import Path


def forbidden(root: Path, released: Path) -> list[str]:
    """What students get that they must not: lines of solutions, of wrong and right answers, of the guide."""
    stubs = {line.strip() for path in (root / "exercises").rglob("*.py") for line in path.read_text().splitlines()}
    secret = {
        line.strip()
        for path in (root / "solutions").rglob("*.py")
        for line in path.read_text().splitlines()
        if len(line.strip()) >= 20
    } - stubs
    guides = [
        tomllib.loads(file.read_text()) for file in (root / "notebooks" / "source").glob("marking_guide*.toml")
    ]
    entries = [entry for guide in guides for entry in guide.values()]
    model_answers = [entry[name] for entry in entries for name in ("answer", "full", "half")]
    found = []
    for path in sorted(released.rglob("*")):
        if not path.is_file():
            continue
        name = str(path.relative_to(released))
        if any(word in name for word in ("solutions", "answers", "marking_guide", "source/", "golden")):
            found.append(name)
        text = path.read_text(errors="replace")
        if path.suffix == ".ipynb":
            text = "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])
        lines = {line.strip() for line in text.splitlines()}
        found += [f"{name}: {line}" for line in secret if line in lines]
        found += [f"{name}: {words}" for words in model_answers if words in text]
        if "BEGIN SOLUTION" in text or "answers.bank" in text:
            found.append(f"{name}: a marker")
    return found
