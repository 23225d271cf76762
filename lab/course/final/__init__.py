"""The final table of a class: exercises, written answers and lateness, for people and for learning platforms.

May import: base, course, course/people.
"""
