"""The checks of section 1 accept different right answers and name what is wrong with the others."""

from pathlib import Path
from textwrap import indent

import pytest
from answers.bank import SOLUTIONS, outcome_of, verdict, with_answer

from lab.grading.diagnosis import Failed

ASSERT = "assert x.shape[1:] == (3, 32, 32), x.shape\n"
BLOCKS = "for block in self.blocks:\n    x = block(x)\n"
END = "return self.classifier(x.flatten(1))\n"

RIGHT = {
    "view": ASSERT + BLOCKS + "return self.classifier(x.view(x.size(0), -1))",
    "three assertions": (
        "assert x.size(1) == 3\nassert x.size(2) == 32\nassert x.size(3) == 32, 'width'\n" + BLOCKS + END
    ),
    "torch._assert": "import torch\ntorch._assert(tuple(x.shape[1:]) == (3, 32, 32), 'images')\n" + BLOCKS + END,
    "whole shape": "assert x.shape == (len(x), 3, 32, 32)\n" + BLOCKS + END,
    "log_softmax": ASSERT + BLOCKS + "return self.classifier(x.flatten(1)).log_softmax(1)",
    "by name": (
        "batch, *image = x.shape\nassert image == [3, 32, 32]\n"
        "a, b, c = self.blocks\nfeatures = c(b(a(x)))\nreturn self.classifier(features.reshape(batch, -1))"
    ),
}

WRONG = {
    "fixed batch": ("fixed-batch-size", "assert x.shape == (128, 3, 32, 32)\n" + BLOCKS + END),
    "fixed odd batch": ("fixed-batch-size", "assert x.shape == (127, 3, 32, 32)\n" + BLOCKS + END),
    "fixed view": ("fixed-batch-size", ASSERT + BLOCKS + "return self.classifier(x.view(64, -1))"),
    "flatten all": ("batch-flattened", ASSERT + BLOCKS + "return self.classifier(x.flatten())"),
    "no assertion": ("no-assertion", BLOCKS + END),
    "no assertion, other sizes fail": ("no-assertion", BLOCKS + "return self.classifier(x.view(len(x), 2048))"),
    "weak assertion": ("assertion-too-weak", "assert x.shape[2:] == (32, 32)\n" + BLOCKS + END),
    "raises": (
        "not-an-assertion",
        "if x.shape[1:] != (3, 32, 32):\n    raise ValueError('images')\n" + BLOCKS + END,
    ),
    "softmax": ("softmax-before-loss", ASSERT + BLOCKS + "return self.classifier(x.flatten(1)).softmax(dim=1)"),
    "relu": ("no-negative-logits", ASSERT + BLOCKS + "return self.classifier(x.flatten(1)).relu()"),
    "sigmoid": ("no-negative-logits", ASSERT + BLOCKS + "return self.classifier(x.flatten(1)).sigmoid()"),
    "no return": ("nothing-returned", ASSERT + BLOCKS + "self.classifier(x.flatten(1))"),
    "a tuple": ("no-logits", ASSERT + BLOCKS + "return self.classifier(x.flatten(1)), x"),
    "argmax": ("wrong-shape", ASSERT + BLOCKS + "return self.classifier(x.flatten(1)).argmax(dim=1)"),
    "features": ("wrong-shape", ASSERT + BLOCKS + "return x.flatten(1)"),
    "squeeze": ("wrong-shape", ASSERT + BLOCKS + "return self.classifier(x.flatten(1)).squeeze()"),
    "mean of the batch": ("rows-depend-on-batch", ASSERT + BLOCKS + "x = x - x.mean(0, keepdim=True)\n" + END),
    "batch norm": (
        "rows-depend-on-batch",
        ASSERT + "x = nn.functional.batch_norm(x, None, None, training=True)\n" + BLOCKS + END,
    ),
    "dropout": ("random-forward", ASSERT + BLOCKS + "x = nn.functional.dropout(x)\n" + END),
    "no_grad": (
        "no-gradients",
        ASSERT + "import torch\nwith torch.no_grad():\n" + indent(BLOCKS, "    ") + END,
    ),
    "detached": ("no-gradients", ASSERT + BLOCKS + "return self.classifier(x.flatten(1)).detach()"),
    "casts": ("dtype-changed", ASSERT + BLOCKS + "return self.classifier(x.flatten(1)).float()"),
    "float only": ("raised", ASSERT + "x = x.float()\n" + BLOCKS + END),
    "ten classes": (
        "num-classes-ignored",
        ASSERT + BLOCKS + "x = self.classifier(x.flatten(1))\nreturn nn.functional.pad(x, (0, 10 - x.shape[1]))",
    ),
    "undefined": ("raised", ASSERT + BLOCKS + "return self.head(x)"),
}  # fmt: skip


@pytest.mark.slow  # variants: tests/answers has one of each kind
@pytest.mark.parametrize("code", RIGHT.values(), ids=RIGHT)
def test_a_right_answer_passes(tmp_path: Path, code: str):
    assert verdict("1.1", with_answer(tmp_path, "1.1", code)) == "passed"


@pytest.mark.slow  # variants: tests/answers has one of each kind
@pytest.mark.parametrize(("name", "code"), WRONG.values(), ids=WRONG)
def test_a_wrong_answer_gets_its_diagnosis(tmp_path: Path, name: str, code: str):
    assert verdict("1.1", with_answer(tmp_path, "1.1", code)) == name


def test_the_solution_passes():
    assert verdict("1.1", SOLUTIONS) == "passed"


def test_the_lines_say_what_was_seen_with_the_numbers(tmp_path: Path):
    outcome = outcome_of("1.1", with_answer(tmp_path, "1.1", WRONG["fixed batch"][1]))
    assert isinstance(outcome, Failed)
    assert outcome.diagnosis.saw.startswith("a batch of ")
    assert ", 3, 32, 32], raised AssertionError; a batch of 128 goes through." in outcome.diagnosis.saw
    assert outcome.diagnosis.look == "model.py:35  assert x.shape == (128, 3, 32, 32)"


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("rows-depend-on-batch", "nn.ReLU(),", "nn.ReLU(), nn.BatchNorm2d(out_channels),"),
        ("random-forward", "nn.ReLU(),", "nn.ReLU(), nn.Dropout(0.1),"),
        ("no-blocks", "self.blocks = nn.ModuleList(", "self.blocks = list("),
        ("passed", "nn.ReLU(),", "nn.GELU(), nn.GroupNorm(1, out_channels),"),
    ],
)
def test_changes_outside_the_region(tmp_path: Path, name: str, old: str, new: str):
    folder = with_answer(tmp_path, "1.1", ASSERT + BLOCKS + END)
    file = folder / "model.py"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    assert verdict("1.1", folder) == name
