"""results/ -> results.csv: what became of every run.

May import: base, runs/records, slurm, sweep/compare.
"""

from lab.sweep.collect.collect import collect

__all__ = ["collect"]
