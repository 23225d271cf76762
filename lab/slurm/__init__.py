"""What Slurm says: its states, its messages in logs, what it knows of a job; and the practice cluster.

May import: base.
"""
