"""The judges of 8.2, an epoch's loss: the mean, where the CPU waited for it, and the sums' digits.

May import: checks/common, grading.
"""
