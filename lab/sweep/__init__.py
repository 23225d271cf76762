"""A benchmark sweep: plan, launch, collect, compare, draw. Knows run folders and CSV, not torch.

May import: sweep/compare, sweep/draw, sweep/plan.
"""
