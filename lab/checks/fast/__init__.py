"""The checks of fast.py: what they observe in the ranks, draw, and judge.

May import: base, checks/common, grading, ranks, training, training/stepping.
"""
