"""What a student has sent, of whatever kind: opened without trusting it, and which of it counts.

May import: base, ranks, sweep/compare, syllabus.
"""
