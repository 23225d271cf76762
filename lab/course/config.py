"""nbgrader_config.py of a course: which files are the students', and who grades them."""

from collections.abc import Mapping, Sequence

ASSIGNMENT = "lab"
ASSIGNMENT_TWO = "lab2"  # part two, for who wants more
COURSE = "scaling-lab"
GRADES = "grades"  # in the course directory: the records of `lab grade` and of `nbgrader autograde`

RELEASE = "release"  # nbgrader's name of the folder with what students get

COLLECT = "lab.course.collect.Collect"  # also tells a course of today from one that was built before

_GLUE = "lab.course.nbgrader_glue"
_HANDOUT = "lab.course.handout.questions"

_TEXT = """\
# Written by `lab course build`, which writes it anew: put settings of your own into nbgrader_config_local.py.
import os
import sys
from pathlib import Path

import lab
import nbgrader
from lab.course.folders import close_folders

c = get_config()
here = os.path.dirname(os.path.abspath(__file__))
# nbgrader calls alembic by its name, also where the virtual environment is not active.
os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", "")

c.CourseDirectory.root = here
c.CourseDirectory.course_id = "{course}"
c.CourseDirectory.ignore = [
    ".ipynb_checkpoints", "*.pyc", "__pycache__", ".pytest_cache", ".lab", "results", ".nbgrader.log",
]
# Where students fetch and submit. On a shared machine: a folder that all of them can reach.
c.Exchange.root = os.path.join(here, "exchange")

# Any user can make any folder in the exchange: links in it are not followed, and nobody's submission is replaced
# by one that another has put there.
c.ExchangeFactory.collect = "{collect}"

# The files that are the students': every other file of a submission is replaced by its original.
c.Autograde.exclude_overwriting = {{
{editable}}}

# Refuses what nbgrader would stumble over after it has deleted the released assignment.
c.GenerateAssignment.exporter_class = "{handout}.CheckedExporter"

# As nbgrader has it, but for the second, for what an answer's cell says to begin with is its own and stays,
# and for new questions mid-term.
c.GenerateAssignment.preprocessors = [
    "nbgrader.preprocessors.LockCells",
    "{glue}.ClearOtherSolutions",
    "nbgrader.preprocessors.ClearOutput",
    "nbgrader.preprocessors.CheckCellMetadata",
    "nbgrader.preprocessors.ComputeChecksums",
    "{handout}.SaveMoreCells",
    "nbgrader.preprocessors.ClearHiddenTests",
    "nbgrader.preprocessors.ClearMarkScheme",
    "nbgrader.preprocessors.ComputeChecksums",
    "nbgrader.preprocessors.CheckCellMetadata",
]

# The modules' checks decide the marks, in a sandbox and outside of any kernel; of a student's notebooks only the
# answers are used, put into the notebooks as they were released.
c.Autograde.exporter_class = "{glue}.SubmissionExporter"
c.Autograde.sanitize_preprocessors = [
    "nbgrader.preprocessors.ClearOutput",
    "{glue}.GraftAnswers",
    "nbgrader.preprocessors.OverwriteKernelspec",
    "nbgrader.preprocessors.OverwriteCells",
    "nbgrader.preprocessors.CheckCellMetadata",
]
c.Autograde.autograde_preprocessors = [
    "{glue}.SurvivingExecute",
    "nbgrader.preprocessors.IgnorePattern",
    "{glue}.ModuleMarks",
    "nbconvert.preprocessors.ClearMetadataPreprocessor",
    "nbgrader.preprocessors.LimitOutput",
    "{glue}.SaveMarks",
    "{glue}.LatePenalties",
    "nbgrader.preprocessors.CheckCellMetadata",
]
c.IgnorePattern.enabled = True
c.IgnorePattern.pattern = r"."  # what a cell writes to stderr is no failure
c.SubmissionExporter.deadline = float(os.environ.get("LAB_GRADE_DEADLINE", "180"))  # seconds for all checks

# Outputs are shown to whoever marks, and to the students: no markup that could do something.
c.HTMLExporter.sanitize_html = True
c.HTMLExporter.filters = {{
    "clean_html": "lab.course.clean.clean_html",
    "markdown2html": "lab.course.clean.markdown2html",
}}
c.NbConvertBase.display_data_priority = ["text/html", "text/markdown", "image/png", "image/jpeg", "text/plain"]
# The formgrader's and the feedback's pages, but so that they wait for nothing from the internet.
c.HTMLExporter.extra_template_basedirs = [
    os.path.join(os.path.dirname(lab.__file__), "course", "templates"),
    os.path.join(os.path.dirname(nbgrader.__file__), "server_extensions", "formgrader", "templates"),
]

if os.path.isfile(os.path.join(here, "nbgrader_config_local.py")):
    load_subconfig("nbgrader_config_local.py", path=here)

# What students must not read is the owner's alone, or the group's too where the course is shared.
shared = bool(c.CourseDirectory.get("groupshared", False))
close_folders(Path(here), shared=shared, make=True)
if not shared:
    c.Autograde.permissions = 400
"""


def config_text(editable: Mapping[str, Sequence[str]]) -> str:
    """The configuration's text.

    Args:
        editable: assignment -> the files that a student hands in changed, relative to it: "exercises/data.py".
    """
    names = "".join(
        f'    "{assignment}": [\n' + "".join(f'        "{name}",\n' for name in files) + "    ],\n"
        for assignment, files in editable.items()
    )
    return _TEXT.format(course=COURSE, editable=names, glue=_GLUE, handout=_HANDOUT, collect=COLLECT)
