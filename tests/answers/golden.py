"""What students read, kept in golden/<exercise>.txt: one block for each wrong answer.

    [fixed-batch-size] the assertion fixes the batch size
    a batch of 6 images, [6, 3, 32, 32], raised AssertionError; a batch of 128 goes through.
    Every rank gets only its part of the batch, and the last one can be smaller: B must stay free.
    model.py:#  assert x.shape == (128, 3, 32, 32)

The draws of the checks are fixed (running.drawn_from), so only what the machine decides is taken out: digits of
measured numbers, what a rank drew without a seed, line numbers (any change above moves them), how long it took,
which of two ranks that fail for the same reason was first, and the wording of PyTorch's and Python's own errors.
"""

import re
from pathlib import Path

from answers.entries import Answer

from lab.grading.diagnosis import Diagnosis

FOLDER = Path(__file__).with_name("golden")

_WEIGHT = r"(blocks|classifier)(\.\d+)*\.(weight|bias)"
_ERRORS = "Runtime|Type|Attribute|Name|UnboundLocal|Index|Key|Assertion"
_LINE = re.compile(r"\b(\w+\.py):\d+")
_REPLACED = [
    # The number that is off the most, which with other rounding can be another one.
    (re.compile(rf"{_WEIGHT} holds \S+ instead of -?[\d.]+(e[-+]\d+)?(?=[.,])"), "a weight holds # instead of #"),
    (re.compile(r"(?<![\w.])-?\d+(\.\d+(e[-+]\d+)?|e[-+]\d+)(?![\w.]*\.(weight|bias))"), "#"),  # 0.4321, 1e-05
    (re.compile(r"\brank \d+ raised"), "rank # raised"),
    (re.compile(r"\brank \d+ called load\(\) before"), "rank # called load() before"),  # whichever was too early
    # Of several orders, each of which a lock keeps by chance: the first that it did not keep.
    (re.compile(r"^.* first(, one for each file system)?: (?=rank # called load.* a lock is for)"), "# first: "),
    # Of an error that all ranks meet: whichever was the first to report it.
    (re.compile(r"\brank \d+ (reduces a gradient|gathers into|reduce-scatters|splits the whole)"), r"rank # \1"),
    # Of several pairs whose sizes differ: whichever came first.
    (
        re.compile(r"\brank \d+ sent \d+ (numbers of \w+) to rank \d+, which received into \d+ numbers"),
        r"rank # sent # \1 to rank #, which received into # numbers",
    ),
    (_LINE, r"\1:#"),
    (re.compile(r"\brank 1 drew [\d, ]+\.\.\. too"), "rank 1 drew #, ... too"),
    (re.compile(r"\bafter \d+ s\b"), "after # s"),
    (re.compile(r"\blines? \d+"), "line #"),
    (re.compile(r"\bMASTER_PORT was \d+"), "MASTER_PORT was #"),
    (re.compile(r"\bset it to \d{4,5}\b"), "set it to #"),  # a port
    # Few or many, as it happened: "4, 5, 20." or "4, 5, 20, 31, 34, 44, ..."
    (re.compile(r"\bboth drew samples \d+(, \d+)*(, \.\.\.|\.(?=\s|$))?"), "both drew samples #, ..."),
    (re.compile(rf"\b((?:{_ERRORS})Error): .*?(?=$|; |, and )"), r"\1: ..."),
]


def normalised(text: str) -> str:
    """A line without what differs from machine to machine."""
    for pattern, replacement in _REPLACED:
        text = pattern.sub(replacement, text)
    return text


def block(answer: Answer, diagnosis: Diagnosis) -> str:
    lines = [normalised(line) for line in (diagnosis.saw, diagnosis.means)]
    look = _LINE.sub(r"\1:#", diagnosis.look)  # its text tells which line it is
    return "\n".join([f"[{diagnosis.name}] {answer.name}", *lines, look]) + "\n"


def read(exercise: str) -> dict[str, str]:
    """Answer name -> its block."""
    path = FOLDER / f"{exercise}.txt"
    if not path.exists():
        return {}
    blocks = path.read_text(encoding="utf-8").split("\n\n")
    return {one.partition("] ")[2].partition("\n")[0]: one.strip("\n") + "\n" for one in blocks if one.strip()}


def write(exercise: str, blocks: dict[str, str], order: list[str]) -> None:
    """Store the blocks in this order; those of answers that are not in it are dropped."""
    FOLDER.mkdir(exist_ok=True)
    text = "\n".join(blocks[name] for name in order if name in blocks)
    (FOLDER / f"{exercise}.txt").write_text(text, encoding="utf-8")
