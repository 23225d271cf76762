"""The symptoms of failed jobs that `lab diagnose` knows: pattern, cause, repair and source, as tables.

May import: slurm.
"""
