"""Where a step's time goes: phases while it runs, and what a profiler's trace says. The summary needs no torch.

May import: base.
"""
