"""The `lab` commands, thin: arguments in, one call, a summary out.

May import: base, course, diagnose, doctor, grading, grading/trace, questions, ranks, student, sweep/collect,
sweep/compare, sweep/draw, syllabus, training/data.
"""
