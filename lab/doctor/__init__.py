"""What this machine is, and whether it will do.

May import: base, ranks, runs/records.
"""
