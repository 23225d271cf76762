"""What happens in a step: precision, accumulation, schedules, capture, compiling, evaluation, measuring, signals.

May import: base, runs/options, runs/records, training/metrics, training/profiling.
"""
