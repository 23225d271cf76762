"""What happens in a step: precision, accumulation, schedules, capture, measuring, signals.

May import: base, runs/options, runs/records, training/profiling.
"""
