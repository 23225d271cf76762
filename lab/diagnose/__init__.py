"""What happened to a job, from what it left behind: logs, records, flight recorder dumps. Imports no torch.

May import: base, collectives, diagnose/symptoms, diagnose/told, diagnose/trained, slurm.
"""
