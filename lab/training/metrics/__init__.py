"""What is measured of a run besides loss and accuracy: gradients, FLOPs against a card's peak, answers by class.

May import: base, runs/records.
"""
