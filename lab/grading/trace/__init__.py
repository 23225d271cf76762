"""Every rank's collectives side by side, as text and as a picture.

May import: base, collectives, grading, ranks, syllabus.
"""
