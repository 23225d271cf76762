"""Runs the jobs of a plan, through Slurm or on this machine.

May import: base, runs/options, runs/records, slurm, sweep/collect, sweep/plan.
"""

from lab.sweep.launch.launch import Choices, run_sweep

__all__ = ["Choices", "run_sweep"]
