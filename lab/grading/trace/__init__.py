"""Every rank's collectives side by side, as text and as a picture; a notebook cell's code on ranks.

May import: base, collectives, grading, ranks, syllabus.
"""
