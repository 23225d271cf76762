"""What a notebook calls: check("3.2"), hint(), trace("6.2"), progress(), question(), answer(), and %%ranks cells.

Importing this begins to load PyTorch, here and in the process that the ranks are forked from, in the background:
by the time the first check cell runs, most of it is done. With LAB_GRADING in the environment nothing is started.

May import: base, grading, grading/trace, questions, ranks, student, sweep/collect, sweep/compare, syllabus.
"""

from lab.notebook import figures
from lab.notebook.calls import check, hint, progress, question, trace
from lab.notebook.model_answer import answer
from lab.notebook.ranks_cell import register
from lab.notebook.session import warm_up

__all__ = ["answer", "check", "figures", "hint", "progress", "question", "trace"]

register()
warm_up()
