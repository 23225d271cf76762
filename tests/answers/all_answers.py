"""All answers of the bank, in the order of the exercises."""

from importlib import import_module
from pathlib import Path

from answers.entries import Answer

ANSWERS: list[Answer] = [
    answer
    for path in sorted(Path(__file__).parent.glob("exercise_*.py"))
    for answer in import_module(f"answers.{path.stem}").bank.answers
]
RIGHT = [answer for answer in ANSWERS if not answer.diagnosis]
WRONG = [answer for answer in ANSWERS if answer.diagnosis]
