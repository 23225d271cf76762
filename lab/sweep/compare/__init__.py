"""What is compared with what: the table of runs, baselines, efficiencies, pairs, predictions.

May import: base, diagnose, runs/options, runs/records, slurm.
"""
