"""The checks of from_scratch/pipeline.py: what they observe in the ranks, draw, and judge.

May import: checks/common, checks/from_scratch, grading, grading/trace, ranks.
"""
