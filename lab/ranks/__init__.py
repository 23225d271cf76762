"""Real ranks for the checks: started, watched, ended; in a sandbox or not.

May import: base, collectives.
"""
