"""Code that changes what the checks see instead of what it does: it gains nothing, and is noticed."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from answers.bank import with_answer

from lab.grading.diagnosis import TAMPERED, Failed
from lab.grading.suite import run_exercise
from lab.syllabus.syllabus import syllabus

UNSURE = "for block in self.blocks:\n    x = block(x)\nreturn self.classifier(x.flatten(start_dim=1))"

FORWARD = """
    import sys
    observe = sys.modules["lab.checks.model.observe"]
    real = observe.forward

    def forward(rank, network, images):
        if tuple(images.shape[1:]) == (3, 32, 32):
            return real(rank, network, images)
        said = {"type": "AssertionError", "bases": ["AssertionError"], "message": "", "file": "", "text": ""}
        return {"value": None, "error": {**said, "line": 0}}
"""
# (exercise, a wrong answer, code behind it that makes its check see a right one)
ATTACKS = {
    "sets a function of the check": (
        "1.1",
        UNSURE,
        FORWARD + "    observe.forward = forward\n",
    ),
    "gives a function of the check other code": (
        "1.1",
        UNSURE,
        FORWARD
        + """
    import types
    real = types.FunctionType(observe.forward.__code__, vars(observe))
    sys.real = real
    def code(rank, network, images):
        import sys
        if tuple(images.shape[1:]) == (3, 32, 32):
            return sys.real(rank, network, images)
        said = {"type": "AssertionError", "bases": ["AssertionError"], "message": "", "file": "", "text": ""}
        return {"value": None, "error": {**said, "line": 0}}
    observe.forward.__code__ = code.__code__
""",
    ),
    "sets what the check's functions use": (
        "1.1",
        UNSURE,
        """
    import sys
    common = sys.modules["lab.checks.common.attempt"]
    observe = sys.modules["lab.checks.model.observe"]
    attempt = observe.attempt
    def lenient(rank, function, images):
        if tuple(images.shape[1:]) == (3, 32, 32):
            return attempt(rank, function, images)
        said = {"type": "AssertionError", "bases": ["AssertionError"], "message": "", "file": "", "text": ""}
        return {"value": None, "error": {**said, "line": 0}}
    observe.attempt = common.attempt = lenient
""",
    ),
    "sets how results are sent": (
        "1.1",
        UNSURE,
        """
    import lab.ranks.wire as wire
    pack = wire._pack
    def lie(value, blobs, path):
        if path == "value" and isinstance(value, dict) and "wrong" in value:
            said = {"type": "AssertionError", "bases": ["AssertionError"], "message": "", "file": "", "text": ""}
            value["wrong"] = [{"value": None, "error": {**said, "line": 0}}] * len(value["wrong"])
        return pack(value, blobs, path)
    wire._pack = lie
""",
    ),
    "sets the check's clock": (
        "3.1",
        "CLOCK.late = 0.0 if is_first else 1000.0\nreturn load()",
        """
    import sys, time, types
    CLOCK = types.SimpleNamespace(late=0.0, sleep=time.sleep, monotonic=lambda: time.monotonic() + CLOCK.late)
    sys.modules["lab.checks.data.observe_loading"].time = CLOCK
""",
    ),
    "sets what the check notes": (
        "3.1",
        "global LATE\nLATE = 0.0 if is_first else 1000.0\nreturn load()",
        """
    import sys
    Board = sys.modules["lab.checks.data.observe_loading"].Board
    note = Board.note
    LATE = 0.0
    def late(self, what):
        note(self, what)
        self.events[-1] = (what, self.events[-1][1] + LATE)
    Board.note = late
""",
    ),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_what_a_check_sees_cannot_be_replaced_unseen(tmp_path: Path, name: str) -> None:
    exercise, answer, code = ATTACKS[name]
    folder = with_answer(tmp_path, exercise, answer)
    module = folder / syllabus()[exercise].file
    module.write_text(module.read_text() + dedent(code))
    found = run_exercise(syllabus()[exercise], folder).outcome
    assert isinstance(found, Failed), found
    assert found.diagnosis.name == TAMPERED, found.diagnosis.lines
