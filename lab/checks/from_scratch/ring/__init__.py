"""The checks of from_scratch/ring.py: what they observe in the ranks, draw, and judge.

May import: base, checks/common, checks/from_scratch, collectives, grading, grading/trace, ranks.
"""
