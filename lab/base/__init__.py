"""What every room stands on: errors, words, files, the terminal, this machine.

May import: nothing.
"""
