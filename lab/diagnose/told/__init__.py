"""What one kind of evidence tells of a job, each as a finding: exceptions, ends, crashes, dumps, epochs, versions.

May import: base, collectives, slurm.
"""
