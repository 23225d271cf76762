"""Modules of a class that are alike beyond what all right answers share, for a person to look at.

May import: base, course.
"""
