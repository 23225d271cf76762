"""A training step by kinds of kernel, beside what the device can do at best: `lab roofline`.

May import: base, runs/options, sweep/draw, training/networks, training/stepping.
"""
