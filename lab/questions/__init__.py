"""Small questions beside the free texts: a number, a choice or an order, drawn anew for each student, and judged.

They cost and earn no points. May be asked in notebooks and in a terminal.

May import: base, student.
"""
