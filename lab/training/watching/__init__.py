"""What a person sees of a run while it goes: lines, progress bar, TensorBoard, profiles.

May import: base, runs/options, runs/records, training/metrics, training/profiling, training/stepping.
"""
