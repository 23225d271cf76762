"""The checks of from_scratch/hsdp.py: what they observe in the ranks, draw, and judge.

May import: base, checks/common, checks/from_scratch, grading, grading/trace, ranks.
"""
