"""The first cell of notebook 0 that does something: a training on one rank and on two, before anything is written.

May import: notebook, ranks, training/data.
"""

from lab.first_look.cell import first_look

__all__ = ["first_look"]
