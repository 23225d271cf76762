"""The `lab` commands, thin: arguments in, one call, a summary out.

May import: bandwidth, base, course, course/final, course/people, course/similar, diagnose, diagnose/told, doctor,
grading, grading/trace, plan, questions, ranks, roofline, runs/options, student, sweep/collect, sweep/compare,
sweep/draw, sweep/launch, syllabus, training/data.
"""
