"""Check 8.6: a measurement on a pretended GPU, and how far two models are apart.

May import: checks/common, grading, ranks, training, training/stepping.
"""
