"""What is measured of a run besides loss and accuracy: gradients, the loss scale, FLOPs against a card's peak.

May import: runs/records.
"""
