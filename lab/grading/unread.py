"""Results that nobody reads, of a collective or of arithmetic; sets, which have no order that ranks could share.

Told from the source, which is read and never run. It explains a failure that was seen, and decides on none.
"""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from lab.base.source import parsed, searchable
from lab.base.words import one_line
from lab.collectives.copies import SAME_MEMORY, copies_sent, fresh, last_name
from lab.collectives.order import sorted_by_own, unordered_loops
from lab.grading.check import Check, Group
from lab.grading.diagnosis import Diagnosis
from lab.grading.places import at_line, fixed_loop, kept_from, read_lines, ways_in
from lab.syllabus.syllabus import syllabus

_COLLECTIVES = ("all_reduce", "reduce", "broadcast")  # they write to the tensor that they are given
_OF_OBJECTS = "broadcast_object_list"  # it writes to the list that it is given, and to nothing that was in it
# Methods that change nothing, and are called for what they return.
_PURE = ("div", "mul", "add", "sub", "mean", "sum", "float", "double", "detach", "clone", "item")

# Functions that conditions ask, and nobody means without ().
_ASKING = ("is_available", "is_initialized", "is_nccl_available", "is_torchelastic_launched", "is_contiguous")

NOT_ADDED = ("not-added", "wrong-sum")  # what is told of an addition that has had no effect
_ONE_BY_ONE = ("5.1",)  # what is wrong there is wrong in the group that ran last, under its command line

UNREAD, DROPPED, UNORDERED = "result-not-read", "result-dropped", "set-has-no-order"
OWN_ORDER = "order-of-own-numbers"

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def unread_results(tree: ast.Module, functions: tuple[str, ...] = ()) -> Iterator[int]:
    """The lines of such calls, in the functions of these names; by default in all."""
    own = {node.name for node in ast.walk(tree) if isinstance(node, _Function)}
    for node in ast.walk(tree):
        if isinstance(node, _Function) and (not functions or node.name in functions):
            yield from _of_function(node, own)


def dropped_results(tree: ast.Module, functions: tuple[str, ...] = ()) -> Iterator[int]:
    """The lines that compute something, and keep nothing of it: `p.grad.div(n)`, `loss / n`."""
    for node in ast.walk(tree):
        if not isinstance(node, _Function) or (functions and node.name not in functions):
            continue
        for statement in ast.walk(node):
            if isinstance(statement, ast.Expr):
                kept = False
            elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                kept = len(statement.targets) > 1 or _is_kept(statement.targets[0].id, statement, node)
            else:
                continue
            value = statement.value.elt if isinstance(statement.value, ast.ListComp) else statement.value
            computes = isinstance(value, ast.BinOp) or (isinstance(value, ast.Call) and _is_pure(value.func))
            if computes and not kept:
                yield statement.lineno


def innermost(tree: ast.Module, line: int) -> _Function | None:
    """The innermost function that a line is in."""
    around = [one for one in ast.walk(tree) if isinstance(one, _Function) and _within(one, line)]
    return max(around, key=lambda one: one.lineno, default=None)


def named_only(function: _Function) -> int:
    """The first line that is nothing but a method's name, or asks for it, `if dist.is_initialized:`; or 0."""
    lines = [
        one.lineno
        for one in ast.walk(function)
        if isinstance(one, ast.Expr) and isinstance(one.value, ast.Attribute)
    ]
    asked = [one for test in _tests(function) for one in ast.walk(test) if isinstance(one, ast.Attribute)]
    called = [id(one.func) for one in ast.walk(function) if isinstance(one, ast.Call)]
    lines += [one.lineno for one in asked if one.attr in _ASKING and id(one) not in called]
    return min(lines, default=0)


def _tests(function: _Function) -> list[ast.expr]:
    return [one.test for one in ast.walk(function) if isinstance(one, ast.If | ast.IfExp)]


def always_true(function: _Function) -> int:
    """The first condition that cannot be false: `x == "a" or "b"`; 0 where there is none."""
    lines = [
        test.lineno
        for test in _tests(function)
        if isinstance(test, ast.BoolOp)
        and isinstance(test.op, ast.Or)
        and any(isinstance(one, ast.Constant) and one.value for one in test.values)
    ]
    return min(lines, default=0)


def assigned_under(function: _Function, name: str) -> int:
    """The line of the `if` in which a variable is set first; 0 where it is set under none."""
    stores = [
        one.lineno
        for one in ast.walk(function)
        if isinstance(one, ast.Name) and one.id == name and isinstance(one.ctx, ast.Store)
    ]
    first = min(stores, default=0)
    around = [one.lineno for one in ast.walk(function) if isinstance(one, ast.If) and _within(one, first)]
    return max(around, default=0)


def _within(node: ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _is_kept(name: str, made: ast.Assign, function: _Function) -> bool:
    """Whether anything reads the variable after the line that makes it: below it, or in a loop's next round."""
    uses = [part for part in ast.walk(function) if isinstance(part, ast.Name) and part.id == name]
    end = made.end_lineno or made.lineno
    if any(isinstance(part, ast.Global | ast.Nonlocal) and name in part.names for part in ast.walk(function)):
        return True
    if any(isinstance(use.ctx, ast.Load) and use.lineno > end for use in uses):
        return True
    for loop in ast.walk(function):
        if isinstance(loop, ast.For | ast.While) and loop.lineno <= made.lineno <= (loop.end_lineno or 0):
            inside = [use for use in uses if loop.lineno <= use.lineno <= (loop.end_lineno or 0)]
            # A line reads before it writes.
            first = min(inside, key=lambda use: (use.lineno, isinstance(use.ctx, ast.Store)))
            if isinstance(first.ctx, ast.Load):
                return True
    return False


def _is_pure(function: ast.expr) -> bool:
    return isinstance(function, ast.Attribute) and function.attr in _PURE


def _of_function(function: _Function, own: set[str]) -> Iterator[int]:
    """Args: `own` are the names of the module's functions: who calls one of them may mean another thing."""
    for statement in ast.walk(function):
        if not isinstance(statement, ast.Expr) or not isinstance(call := statement.value, ast.Call):
            continue
        if last_name(call.func) not in (*_COLLECTIVES, _OF_OBJECTS) or (
            isinstance(call.func, ast.Name) and call.func.id in own
        ):
            continue
        tensor = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "tensor"), None)
        if isinstance(tensor, ast.Call):
            calls = [last_name(part.func) for part in ast.walk(tensor) if isinstance(part, ast.Call)]
            if calls[0] not in SAME_MEMORY or "clone" in calls:
                yield statement.lineno
        elif isinstance(tensor, ast.Name) and not _is_read(tensor.id, statement, function):
            yield statement.lineno


def _is_read(name: str, after: ast.stmt, function: _Function) -> bool:
    """Whether the variable is used after that line; anything that may be run again counts as after it."""
    arguments = [*function.args.args, *function.args.kwonlyargs]
    if name in [argument.arg for argument in arguments]:
        return True  # it is the caller's
    if any(isinstance(node, ast.For) and name in _names_in(node.target) for node in ast.walk(function)):
        return True  # one of those that somebody else holds
    made = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets)
    ]
    of_objects = last_name(after.value.func) == _OF_OBJECTS  # type: ignore[attr-defined]
    if not of_objects and not all(fresh(node.value) for node in made):
        return True  # it may be another name for what somebody else holds
    loops = [node for node in ast.walk(function) if isinstance(node, ast.For | ast.While)]
    around = [loop for loop in loops if loop.lineno <= after.lineno <= (loop.end_lineno or loop.lineno)]
    begin = min([loop.lineno for loop in around], default=after.lineno)
    end = after.end_lineno or after.lineno
    for node in ast.walk(function):
        read = isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
        line = getattr(node, "lineno", 0)
        if read and (line > end or (around and begin <= line < after.lineno)):
            return True
    return False


def _names_in(target: ast.expr) -> list[str]:
    return [part.id for part in ast.walk(target) if isinstance(part, ast.Name)]


def unread(diagnosis: Diagnosis, check: Check, group: Group) -> Diagnosis | None:
    """Of the first line that reduces or sends what nobody reads, or makes copies for that; None: there is none."""
    return _of_a_line(
        copies_sent,
        UNREAD,
        "makes copies, and nothing reads them when they have been sent or summed",
        "A collective writes to what it is given: hand it the tensors themselves, or write the copies back.",
        (diagnosis, check, group),
    ) or _of_a_line(
        unread_results,
        UNREAD,
        "hands a collective a tensor that nothing reads afterwards",
        "A collective writes to the tensor that it is given: keep that in a variable, and go on with it.",
        (diagnosis, check, group),
    )


def dropped(diagnosis: Diagnosis, check: Check, group: Group) -> Diagnosis | None:
    """Told of the first line that computes what nobody keeps; None where there is none."""
    return _of_a_line(
        dropped_results,
        DROPPED,
        "computes something that nothing keeps",
        "a + b gives a new tensor and leaves the old one as it is: += and add_() change it."
        if diagnosis.name in NOT_ADDED
        else "div() and / give a new tensor and leave the old one as it is: div_() and /= change it.",
        (diagnosis, check, group),
    )


def unordered(diagnosis: Diagnosis, check: Check, group: Group) -> Diagnosis | None:
    """Told of the first set or sorted list that each rank goes through in another order; None without one."""
    return _of_a_line(
        unordered_loops,
        UNORDERED,
        "goes through a set, which each rank has in another order: their collectives meet with other tensors",
        "Collectives are matched by their order: go through a list, or model.parameters() itself.",
        (Diagnosis("", saw="", means="", look="", details=diagnosis.details), check, group),
    ) or _of_a_line(
        sorted_by_own,
        OWN_ORDER,
        "sorts by numbers that each rank has for itself: their collectives meet with other tensors",
        "Collectives are matched by their order: it has to follow from what is the same on every rank.",
        (Diagnosis("", saw="", means="", look="", details=diagnosis.details), check, group),
    )


def _of_a_line(
    find: Callable[[ast.Module], Iterator[int]],
    name: str,
    does: str,
    means: str,
    seen: tuple[Diagnosis, Check, Group],
) -> Diagnosis | None:
    diagnosis, check, group = seen
    file, folder = syllabus()[check.exercise].file, group.code.resolve()
    tree = parsed("\n".join(read_lines(str(folder / file), folder)))
    line = next(find(tree), 0) if tree else 0
    if not line:
        return None
    saw = f"line {line} {does}. {one_line(diagnosis.saw, 160)}".rstrip()
    return Diagnosis(name, saw=saw, means=means, look=at_line(file, line, group.code), details=diagnosis.details)


def of_the_source(diagnosis: Diagnosis, check: Check, group: Group) -> Diagnosis:
    """The same with the line that is behind it: a method that is named and not called, a condition under which
    alone a variable gets its value, or what has kept the line that is shown from being run at all."""
    file, folder = syllabus()[check.exercise].file, group.code.resolve()
    place = re.match(r"([\w.]+):(\d+)  ", searchable(diagnosis.look))
    tree = parsed("\n".join(read_lines(str(folder / file), folder)))
    if place is None or tree is None or place[1] != Path(file).name:
        return diagnosis
    function = innermost(tree, int(place[2]))
    unbound = re.search(r"UnboundLocalError: cannot access local variable '(\w+)'", searchable(diagnosis.saw))
    means, line = diagnosis.means, 0
    if function is not None and (line := named_only(function)):
        means = "Without () a method is only named, and nothing is called: write () behind it."
    elif function is not None and (line := always_true(function)):
        means = "What stands beside `or` is true by itself, so all of it is: write the comparison on both sides."
    elif function is not None and unbound and (line := assigned_under(function, unbound[1])):
        means = f"{unbound[1][:40]} gets its value under this condition alone."
    elif function is not None:
        results = group.results[-1:] if check.exercise in _ONE_BY_ONE else group.results
        conducts = [report.conduct for result in results for report in result.reports]
        line = kept_from(function, int(place[2]), ways_in(file, conducts))
        if not line and diagnosis.name in ("raised", "block-left-out"):
            past = "IndexError" in diagnosis.saw or diagnosis.name != "raised"
            if line := fixed_loop(tree, int(place[2])) if past else 0:
                means = "The loop goes as often as is written there: go through what is there, however many."
    if not line:
        return diagnosis
    look = at_line(file, line, group.code)
    return Diagnosis(diagnosis.name, saw=diagnosis.saw, means=means, look=look, details=diagnosis.details)
