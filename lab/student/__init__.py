"""What is remembered of one student: progress, hints, saves; and their JupyterLab.

May import: base, grading, ranks, syllabus.
"""
