"""For courses built before lab/course: the nbgrader_config.py of these names this package and its templates.

May import: course.
"""
