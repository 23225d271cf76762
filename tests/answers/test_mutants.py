"""Which slips in the reference the checks see: mutants.py makes them, survivors.txt says why the others pass.

pytest tests/answers/test_mutants.py -m slow      all mutants of the reference, some 1,600, for half an hour
    -k 6.1                                        those of one exercise
    --update-golden                               writes survivors.txt anew; a new survivor gets the reason "?"
"""

import hashlib
import re
from pathlib import Path

import pytest
from answers.bank import SOLUTIONS, solution
from answers.entries import Answer
from answers.mutants import mutants
from answers.running import first_outcome, told

from lab.syllabus.stubs import BEGIN

SURVIVORS = Path(__file__).parent / "survivors.txt"
FIRST_SECTIONS = re.compile(r"[1-6]\.")
_LAYOUT = re.compile(r"[\s'\"]")
# Why a mutant passes. One that should not is a hole, and says so.
REASONS = {
    "same": "the same in other words",
    "order": "the order is free",
    "twice": "done twice: it takes time, and changes nothing",
    "unasked": "it is about an option that no exercise asks for",
    "allowed": "another way that the exercise allows",
    "hole": "nobody notices yet",
}


def regions() -> list[str]:
    lines = [line for path in sorted(SOLUTIONS.glob("*.py")) for line in path.read_text("utf-8").splitlines()]
    names = [match[1] + match[2] for line in lines if (match := BEGIN.match(line))]
    return sorted(name for name in names if FIRST_SECTIONS.match(name))


def key(region: str, text: str) -> str:
    """Without what another Python's ast.unparse() may write otherwise: quotes and spaces."""
    return f"{region} {hashlib.sha256(_LAYOUT.sub('', text).encode()).hexdigest()[:12]}"


def survivors() -> dict[str, tuple[str, str]]:
    """Region and digest of the code -> the reason, and what was changed."""
    lines = [line for line in SURVIVORS.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    split = [line.split("  ", 2) for line in lines]
    return {name: (reason, what) for name, reason, what in split}


def test_each_survivor_has_a_reason_and_is_a_mutant_of_today():
    of_today = [key(region, text) for region in regions() for _, text in mutants(solution(region))]
    listed = survivors()
    assert len(set(of_today)) == len(of_today)
    assert listed.keys() <= set(of_today)
    assert {reason for reason, _ in listed.values()} <= set(REASONS)


def test_a_mutant_differs_in_one_place():
    code = "if rank == 0:\n    total += 1\nreturn [total, mean(total, dim=1)]\n"
    made = dict(mutants(code))
    assert len(set(made.values())) == len(made)
    assert made["the contrary: if rank == 0:"].startswith("if not rank == 0:")
    assert made["another comparison: rank == 0"].startswith("if rank != 0:")
    assert made["assigned <total += 1>: if rank == 0:"].startswith("if rank == 0:\n    total = 1\n")
    assert made["without dim: mean(total, dim=1)"].endswith("return [total, mean(total)]\n")
    assert made["left out <return [total, mean(total, dim=1)]>: def region():"].endswith("pass\n")


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("region", regions())
def test_a_mutant_is_refused_or_known_to_be_right(region: str, tmp_path: Path, request: pytest.FixtureRequest):
    known, passed, count = survivors(), {}, 0
    for count, (what, text) in enumerate(mutants(solution(region)), 1):
        answer = Answer(region.rstrip("ab"), what, {region: text})
        if told(first_outcome(answer, tmp_path / str(count))) == "passed":
            passed[key(region, text)] = what
    print(f"{region}: {count} mutants, {count - len(passed)} refused")
    if request.config.getoption("--update-golden", False):
        found = {name: (known.get(name, ("?", ""))[0], what) for name, what in passed.items()}
        kept = {name: line for name, line in known.items() if name.split()[0] != region}
        write(kept | found)
        return
    assert passed.keys() <= known.keys(), {name: passed[name] for name in passed.keys() - known.keys()}
    assert passed.keys() >= {name for name in known if name.split()[0] == region}, "it is refused now"


def write(found: dict[str, tuple[str, str]]) -> None:
    head = [f"# {reason:8} {why}" for reason, why in REASONS.items()]
    lines = [f"{name}  {reason}  {what}" for name, (reason, what) in sorted(found.items())]
    SURVIVORS.write_text("\n".join([*head, *lines]) + "\n", encoding="utf-8")
