"""Every rank's collectives side by side, as text and as a picture; what a check did; a cell's code on ranks.

May import: base, collectives, grading, ranks, syllabus.
"""
