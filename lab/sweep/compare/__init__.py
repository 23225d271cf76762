"""What is compared with what: baselines, efficiencies, pairs, predictions.

May import: base, runs/options, slurm.
"""
