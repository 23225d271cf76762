"""How fast ranks talk: collectives measured over sizes and ranks, and what a message and a byte cost.

May import: base, slurm, sweep/draw, sweep/launch.
"""
