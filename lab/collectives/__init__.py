"""What PyTorch's flight recorder knows of the ranks' collectives, and whether they can ever match.

May import: base.
"""
