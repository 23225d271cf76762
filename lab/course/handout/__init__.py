"""An assignment given out once more when some have handed in: questions that are new, and what is refused.

May import: nothing.
"""
