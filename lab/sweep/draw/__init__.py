"""Figures and the report.

May import: base, runs/records, slurm, sweep/collect, sweep/compare.
"""
