"""Data sets: found, downloaded, decoded, kept, augmented.

May import: base, runs/options.
"""
