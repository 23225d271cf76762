"""Which layout of a model fits so many devices, what it sends, how long a step takes and what a training costs.

May import: base, runs/options, sweep/compare, training/metrics, training/networks.
"""
