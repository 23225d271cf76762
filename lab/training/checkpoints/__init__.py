"""Saving a run, and going on from what was saved.

May import: base, runs/options, runs/records, training/stepping.
"""
