"""A class: built, handed in, graded, marked, reported; with nbgrader and without.

May import: base, course/people, course/sent, grading, ranks, syllabus.
"""
