"""What is known of a run without torch: what it is asked for, and what it leaves behind.

May import: nothing.
"""
