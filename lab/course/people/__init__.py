"""Who the students of a class are, and when they handed in: roster, names, due dates, extensions, penalties.

May import: base.
"""
