"""docs/mistakes.md: which mistakes the lab knows, and what a student reads about each.

make mistakes        writes it from the bank and its golden files; nothing is run for it
"""

from pathlib import Path

from answers import golden
from answers.all_answers import RIGHT, WRONG

from lab.syllabus.syllabus import syllabus

PAGE = Path(__file__).resolve().parents[2] / "docs" / "mistakes.md"

INTRODUCTION = """\
# Mistakes the lab knows

For instructors, since it nearly gives the answers. `tests/answers` holds {wrong} wrong answers, each with the
diagnosis it gets, and {right} different right ones that pass, in one file for each exercise. A diagnosis has three
lines: what was seen, what it means, where to look. `#` stands for numbers that differ from run to run, `...` for
the words of Python's or PyTorch's own error.

`make mistakes` writes this page.
"""


def page() -> str:
    """The page's text."""
    parts = [INTRODUCTION.format(wrong=len(WRONG), right=len(RIGHT))]
    for exercise in syllabus().every:
        blocks = golden.read(exercise.id)
        parts.append(f"## {exercise.id} {exercise.title}\n")
        parts.append("| mistake | diagnosis | what the student reads |\n|---|---|---|")
        for answer in WRONG:
            if answer.exercise == exercise.id and answer.name in blocks:
                _, *lines = blocks[answer.name].rstrip("\n").split("\n")
                parts.append(f"| {cell(answer.name)} | `{answer.diagnosis}` | {'<br>'.join(map(cell, lines))} |")
        parts.append("")
    return "\n".join(parts)


def cell(text: str) -> str:
    """Text as it is, inside a Markdown table."""
    for sign in ("\\", "`", "*", "|", "<", "["):
        text = text.replace(sign, "\\" + sign)
    return text.replace("__", "\\_\\_")


def write() -> None:
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    write()
