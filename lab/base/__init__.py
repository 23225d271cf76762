"""What every room stands on: errors, words, files, paths, the terminal, this machine and its processes.

May import: nothing.
"""
