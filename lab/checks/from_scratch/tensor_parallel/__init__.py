"""The checks of from_scratch/tensor_parallel.py: what they observe in the ranks, draw, and judge.

May import: checks/common, checks/from_scratch, grading, ranks, training/networks.
"""
