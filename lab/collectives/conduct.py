"""Inside a rank: what the student's code did that its results do not show.

Errors that it caught and kept to itself, which way each of its conditions went, and the launcher's variables that
it set. The student's modules are compiled with notes at these places, as they are for departures.py: tracing would
make a rank a third slower, and sys.monitoring needs Python 3.12.

In the grader, `read_conduct` makes a Conduct of what a rank has sent. It explains a wrong answer, and never
decides on one.
"""

from __future__ import annotations

import ast
import builtins
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# "train.py:41:1:rank == 0": this condition in that line goes that way on every rank, to see whether that is what
# is wrong.
FORCED = "LAB_FORCED_CONDITION"
# "train.py:41:an error": what the `try` or `suppress` of that line guards fails at once on every rank, in these
# words: to see what comes of it.
FAILING = "LAB_FAILING_TRY"

VARIABLES = (
    *("MASTER_ADDR", "MASTER_PORT", "RANK", "LOCAL_RANK", "WORLD_SIZE"),
    *("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"),
)

_CAUGHT, _TOOK = "__lab_note_caught__", "__lab_note_took__"
_KEPT = 40  # notes of each kind
_TEXT = 200  # characters

_caught: dict[tuple[str, int, str], list[Any]] = {}
_took: dict[tuple[str, int, str], set[bool]] = {}
_set: list[list[Any]] = []
_forced: list[tuple[str, int, bool, str]] = []
_failing: list[tuple[str, int, str]] = []

# What an error of the machine or of other ranks may come as. Narrower ones are asked for by many a right `except`.
_ANY_ERROR = {"Exception", "BaseException", "RuntimeError"}
_OF_THE_MACHINE = ("OutOfMemoryError", "AcceleratorError", "DistError", "DistBackendError", "DistNetworkError")


@dataclass(frozen=True)
class Caught:
    """An error that an `except` or a `suppress` kept from everybody else.

    line      where it came out of the student's code; `handler` the line that caught it
    broad     whether that line catches every Exception
    raised_in the file in which it was raised, which may be PyTorch's
    """

    file: str
    line: int
    function: str
    type: str
    message: str
    handler: int
    broad: bool
    raised_in: str


@dataclass(frozen=True)
class Variable:
    """A launcher's variable that was set; `before` is "" where there was none."""

    name: str
    before: str
    after: str
    file: str
    line: int


@dataclass(frozen=True)
class Conduct:
    """One rank's. `conditions`: (file, line, text) -> the ways that it went."""

    caught: tuple[Caught, ...] = ()
    conditions: tuple[tuple[tuple[str, int, str], frozenset[bool]], ...] = ()
    variables: tuple[Variable, ...] = ()


def notes() -> dict[str, Any]:
    """All there is so far, as plain data."""
    conditions = [[*key, sorted(ways)] for key, ways in list(_took.items())[:_KEPT]]
    return {"caught": list(_caught.values())[:_KEPT], "conditions": conditions, "variables": _set[:_KEPT]}


def read_conduct(said: Any) -> Conduct:
    """The notes that a rank has sent, which may be anything: then nothing is known."""
    try:
        caught = [Caught(*_typed(one, str, int, str, str, str, int, bool, str)) for one in said["caught"][:_KEPT]]
        conditions = []
        for file, line, text, ways in said["conditions"][:_KEPT]:
            place = tuple(_typed([file, line, text], str, int, str))
            conditions.append((place, frozenset(bool(way) for way in ways[:2])))
        variables = [Variable(*_typed(one, str, str, str, str, int)) for one in said["variables"][:_KEPT]]
    except (ValueError, TypeError, KeyError, AttributeError):
        return Conduct()
    return Conduct(tuple(caught), tuple(conditions), tuple(variables))


def _typed(values: list[Any], *kinds: type) -> list[Any]:
    if len(values) != len(kinds) or any(
        type(value) is not kind for value, kind in zip(values, kinds, strict=True)
    ):
        raise ValueError("a note of something else")
    return [value[: 2 * _TEXT] if isinstance(value, str) else value for value in values]


def begin(code: Path) -> None:
    """Before the first of the student's modules in `code` is imported."""
    setattr(builtins, _CAUGHT, _note_caught)
    setattr(builtins, _TOOK, _note_took)
    file, _, rest = os.environ.pop(FORCED, "").partition(":")
    if file:
        line, way, text = rest.split(":", 2)
        _forced.append((file, int(line), way == "1", text))
    file, _, rest = os.environ.pop(FAILING, "").partition(":")
    if file:
        line, words = rest.split(":", 1)
        _failing.append((file, int(line), words))
    kind = type(os.environ)
    for name in ("__setitem__", "__delitem__"):
        setattr(kind, name, _noting(getattr(kind, name), str(code)))


def _noting(original: Callable[..., Any], folder: str) -> Callable[..., Any]:
    def changed(environ: Any, name: Any, *value: Any) -> Any:
        before = environ.get(name, "") if name in VARIABLES else ""
        result = original(environ, name, *value)
        if name in VARIABLES and len(_set) < _KEPT:
            after, frame = environ.get(name, ""), sys._getframe(1)
            while frame is not None and not frame.f_code.co_filename.startswith(folder):
                frame = frame.f_back  # type: ignore[assignment]
            if frame is not None and after != before:
                _set.append([name, before, after, frame.f_code.co_filename, frame.f_lineno])
        return result

    return changed


def _note_caught(path: str, handler: int, broad: bool) -> None:
    error = sys.exc_info()[1]
    if error is None or len(_caught) >= _KEPT:
        return
    line, function, raised_in, trace = handler, "", path, error.__traceback__
    folder = os.path.dirname(path)
    while trace is not None:
        raised_in = trace.tb_frame.f_code.co_filename
        if os.path.dirname(raised_in) == folder:
            line, function = trace.tb_lineno, trace.tb_frame.f_code.co_name
        trace = trace.tb_next
    try:
        message = str(error)[:_TEXT]
    except Exception:  # noqa: BLE001 - a __str__ of the student's that raises
        message = ""
    kind = type(error).__name__
    _caught.setdefault((path, line, kind), [path, line, function, kind, message, handler, broad, raised_in])


def _note_took(value: Any, path: str, line: int, text: str) -> bool:
    way = bool(value)
    _took.setdefault((path, line, text), set()).add(way)
    for file, number, forced, condition in _forced:
        if (number, condition) == (line, text) and os.path.basename(path) == file:
            return forced
    return way


def text_of(test: ast.expr) -> str:
    """What a condition is noted by, beside its file and line."""
    return ast.unparse(test)[:_TEXT]


def hidden_by(node: ast.AST) -> tuple[int, ast.expr] | None:
    """The line and a class of errors that a `try` or a `suppress` keeps, whatever they tell; None: no such."""
    for line, kinds in _kept_by(node):
        for one in kinds.elts if isinstance(kinds, ast.Tuple) else [kinds]:
            name = ast.unparse(one).rpartition(".")[2]
            if name in _ANY_ERROR:
                return line, ast.Name("RuntimeError", ast.Load())
            if name in _OF_THE_MACHINE:
                return line, one
    return None


def _kept_by(node: ast.AST) -> Iterator[tuple[int, ast.expr]]:
    """The line and the classes of each handler that lets nothing out of it."""
    if isinstance(node, ast.Try):
        for handler in node.handlers:
            if not any(isinstance(part, ast.Raise) or _ends(part) for part in ast.walk(handler)):
                yield handler.lineno, handler.type or ast.Name("BaseException", ast.Load())
    elif isinstance(node, ast.With):
        calls = [item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call)]
        suppressed = [call for call in calls if ast.unparse(call.func).endswith("suppress")]
        yield from ((node.lineno, ast.Tuple(call.args, ast.Load())) for call in suppressed)


def _ends(node: ast.AST) -> bool:
    """Whether it is a call that ends the process."""
    return isinstance(node, ast.Call) and ast.unparse(node.func) in (
        "exit",
        "quit",
        "sys.exit",
        "os._exit",
        "os.abort",
    )


class Noting(ast.NodeTransformer):
    """Puts the notes into a module's tree.

    What a handler that raises something itself has caught is no secret, so nothing is noted there.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        self.generic_visit(node)
        if not any(isinstance(part, ast.Raise) for part in ast.walk(node)):
            node.body.insert(0, self._caught(node, node.type))
        return node

    def visit_Try(self, node: ast.Try) -> ast.AST:
        node.body = self._failing(node) + node.body
        self.generic_visit(node)
        return node

    def visit_With(self, node: ast.With) -> ast.AST:
        node.body = self._failing(node) + node.body
        self.generic_visit(node)
        for item in node.items:
            call = item.context_expr
            if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("suppress"):
                kinds = ast.Tuple(call.args, ast.Load())
                body: list[ast.stmt] = [self._caught(node, kinds), ast.Raise()]
                handler = ast.ExceptHandler(ast.Name("BaseException", ast.Load()), None, body)
                guarded = ast.Try(node.body, [handler], [], [])
                node.body = [ast.copy_location(guarded, node)]
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        self.generic_visit(node)
        node.test = self._each(node.test)
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        node.test = self._each(node.test)
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        self.generic_visit(node)
        node.ifs = [self._each(test) for test in node.ifs]
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.value, ast.BoolOp):  # `rank == 0 and optimizer.step()`
            node.value.values[0] = self._took(node.value.values[0])
        return node

    def _failing(self, node: ast.Try | ast.With) -> list[ast.stmt]:
        """An error at the beginning of what it guards, if that is to be tried."""
        said = [
            words for file, line, words in _failing if (file, line) == (os.path.basename(self.path), node.lineno)
        ]
        hidden = hidden_by(node) if said else None
        if hidden is None:
            return []
        error = ast.Call(hidden[1], [ast.Constant(said[0])], [])
        return [ast.copy_location(ast.Raise(error), node.body[0])]

    def _each(self, test: ast.expr) -> ast.expr:
        """With a note of each part of `a and b`: while `a` guards it, as before, `b` can be tried."""
        if isinstance(test, ast.BoolOp):
            test.values = [self._each(part) for part in test.values]
            return test
        return self._took(test)

    def _took(self, test: ast.expr) -> ast.expr:
        text = text_of(test)
        return self._call(_TOOK, test, test, self.path, test.lineno, text)

    def _caught(self, node: ast.AST, kinds: ast.expr | None) -> ast.stmt:
        names = [] if kinds is None else [part.id for part in ast.walk(kinds) if isinstance(part, ast.Name)]
        broad = kinds is None or bool({"Exception", "BaseException"} & set(names))
        line: int = node.lineno  # type: ignore[attr-defined]
        return ast.copy_location(ast.Expr(self._call(_CAUGHT, node, None, self.path, line, broad)), node)

    def _call(self, name: str, place: ast.AST, first: ast.expr | None, *rest: object) -> ast.expr:
        arguments = [*([] if first is None else [first]), *(ast.Constant(one) for one in rest)]  # type: ignore[arg-type]
        return ast.copy_location(ast.Call(ast.Name(name, ast.Load()), arguments, []), place)
