"""Which layout of a model fits so many devices, what it sends, how long a step takes and what a training costs.

May import: bandwidth, base, runs/options, sweep/compare, training/metrics, training/networks.
"""
