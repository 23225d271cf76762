"""The checks of fast.py: what they observe in the ranks, draw, and judge.

May import: base, checks/common, checks/fast/gain, checks/fast/profiles, grading,
ranks, training/stepping.
"""
