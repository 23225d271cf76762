"""What the checks of several modules use: stand-ins, tiny models, comparisons, words.

May import: base, grading, ranks, runs/options, training.
"""
