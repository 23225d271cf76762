"""How an exercise ended, in nbgrader's notebooks: as HTML and as plain text."""

from lab.base.html import render
from lab.course.marks import ExerciseMark
from lab.grading.looks import LOOKS


def notebook_card(mark: ExerciseMark) -> str:
    """One exercise: outcome, points, and each check with what is wrong."""
    return render("nbgrader.html", mark=mark, looks=LOOKS)


def exercise_text(mark: ExerciseMark) -> str:
    """The same in plain text."""
    lines = [f"{mark.exercise} {mark.title}: {mark.word}, {mark.points_text}"]
    for finding in mark.diagnoses:
        lines += [f"  saw    {finding.saw}", f"  means  {finding.means}", f"  look   {finding.look}"]
    return "\n".join(lines)
