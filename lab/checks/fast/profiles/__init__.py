"""Check 8.1: profiles of steps, and what mistakes make of them.

May import: checks/common, grading, ranks.
"""
