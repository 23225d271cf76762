"""The checks of main.py: what they observe in the ranks, draw, and judge.

May import: base, checks/common, grading, ranks, runs/options, runs/records, training, training/data,
training/watching.
"""
