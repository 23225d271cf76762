"""The checks of from_scratch/zero.py: what they observe in the ranks, draw, and judge.

May import: base, checks/common, checks/from_scratch, grading, ranks.
"""
