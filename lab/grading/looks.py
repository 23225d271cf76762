"""How each outcome looks: in a terminal, in a notebook, on a page. Its word always stands beside it."""

from collections.abc import Mapping
from dataclasses import dataclass

from lab.grading.diagnosis import Blocked, Failed, LabError, NotStarted, Passed

PARTLY = "partly"  # in the class report: failed, though some of the checks passed
TO_CHECK = "to check"  # in the progress strip: written or changed since it was checked last


@dataclass(frozen=True)
class Look:
    """Of one outcome; "" for what only the others need.

    colour  of badges and edges: white on it, and it on white and on JupyterLab's dark grey, is readable
    tint    behind `ink` in the class report
    ascii   the sign for terminals that know ASCII only
    ansi    the terminal's colour
    """

    sign: str
    colour: str = ""
    tint: str = ""
    ink: str = ""
    ascii: str = ""
    ansi: str = ""


# Outcome's word -> look. The tints go from dark to light in the order of how much is right, for prints in grey.
LOOKS: Mapping[str, Look] = {
    Passed.word: Look("✓", "#0a7a50", "#0a7a50", "#fff", ascii="+", ansi="32"),
    PARTLY: Look("½", tint="#7cc4a4", ink="#10231b"),
    Failed.word: Look("✗", "#c2263b", "#f4b8bf", "#4a0d16", ascii="x", ansi="31"),
    Blocked.word: Look("○", "#9a5b00", "#f6dfb6", "#3f2a00", ascii="-", ansi="33"),
    NotStarted.word: Look("·", "#5f6772", "#eceef1", "#3d434b", ascii=".", ansi="2"),
    LabError.word: Look("!", "#7b4bb5", "#7b4bb5", "#fff", ascii="!", ansi="35"),
    TO_CHECK: Look("?", "#2563a8"),
}
