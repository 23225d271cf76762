"""What the checks of section 9 share: which collectives a rank has called, with their bytes.

May import: nothing.
"""
