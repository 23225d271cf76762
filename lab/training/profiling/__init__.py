"""Looking inside a training step: --profile and --nvtx.

phases.py marks the parts of a step as it runs, profiler.py traces a few steps, trace.py reads such a trace, and
summary.py says where the time went.
"""
