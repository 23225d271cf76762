"""The checks students are graded by, a folder a module. Each observes in ranks and judges in the grader.

May import: nothing.
"""
