"""Which jobs a sweep has, and what they will cost.

May import: base, runs/options, runs/records, slurm, sweep/compare.
"""

from lab.sweep.plan.sweep import Sweep

__all__ = ["Sweep"]
