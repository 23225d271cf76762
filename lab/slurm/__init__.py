"""What Slurm says: its states and words, what it knows of a job, and the practice cluster.

May import: base.
"""
