"""What a log shows of training that ended well and was wrong, and of what several ranks had in hand at once.

May import: base, diagnose/told.
"""
