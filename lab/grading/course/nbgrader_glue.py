"""See lab/course/nbgrader_glue.py."""

from lab.course.nbgrader_glue import *  # noqa: F403
