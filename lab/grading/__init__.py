"""From a check to its three lines: checks, suite, outcomes, diagnoses, hangs.

May import: base, collectives, ranks, syllabus.
"""
