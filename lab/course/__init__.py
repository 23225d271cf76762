"""A whole class: the nbgrader course, grading what students submit, and reports. For instructors."""
