"""What a result depends on: the exercise's own functions, and what these use in their module.

Somebody who writes 2.2 changes the file in which 2.1 has passed. So not the file is hashed but its syntax tree,
and of that what the exercise can reach; comments and the layout of the lines do not count.
"""

import ast
import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from lab.base.paths import student_sources
from lab.base.source import MAX_MODULE_BYTES, source_lines
from lab.syllabus.package import definitions, is_todo
from lab.syllabus.syllabus import Exercise

UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)  # what ast.parse raises for what is no module


def code_hash(exercise: Exercise, code: Path) -> str:
    """sha256 of what the exercise depends on; "" when its module cannot be read, or is no ordinary file.

    Where the module does not parse, or holds none of the exercise's functions, all of it counts.
    """
    file = code / exercise.file
    try:
        if not file.is_file() or file.stat().st_size > MAX_MODULE_BYTES:  # reading a pipe would wait for ever
            return ""
        text = file.read_bytes()
    except OSError:
        return ""
    return hashlib.sha256(_what_counts(text, own_names(exercise))).hexdigest()


def own_names(exercise: Exercise) -> frozenset[str]:
    """The functions and classes at the top of the module in which the exercise's TODOs are."""
    stub = student_sources() / "exercises" / exercise.file
    in_stub = _names_in_stub(stub, exercise.id) if stub.is_file() else frozenset()
    return in_stub | {exercise.function.partition(".")[0]}


@cache
def _names_in_stub(stub: Path, exercise_id: str) -> frozenset[str]:
    text = stub.read_text(encoding="utf-8")
    lines = source_lines(text)
    return frozenset(
        name
        for name, (begin, end) in definitions(text).items()
        if any(is_todo(line, exercise_id) for line in lines[begin:end])
    )


def _what_counts(text: bytes, names: frozenset[str]) -> bytes:
    try:
        statements = ast.parse(text).body
        bound = [_bound(statement) for statement in statements]
        if not any(names & here for here in bound):
            return text
        counts = [not here for here in bound]  # what binds no name is run by every import
        wanted = set(names)
        more = True
        while more:
            more = False
            for number, statement in enumerate(statements):
                if not counts[number] and bound[number] & wanted:
                    counts[number] = more = True
                if counts[number]:
                    wanted.update(_used(statement))
        kept = [statement for statement, count in zip(statements, counts, strict=True) if count]
        return ast.dump(ast.Module(kept, type_ignores=[])).encode()
    except UNREADABLE:
        return text


def _bound(statement: ast.stmt) -> set[str]:
    """The names of the module that a statement at its top gives a meaning to; none for what always counts."""
    match statement:
        case ast.Expr(ast.Constant()):
            return {"__doc__"}
        case ast.Import() | ast.ImportFrom() if getattr(statement, "module", "") != "__future__":
            return {(alias.asname or alias.name).partition(".")[0] for alias in statement.names} - {"*"}
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            inner = [node.names for node in ast.walk(statement) if isinstance(node, ast.Global)]
            return {statement.name, *(name for names in inner for name in names)}
        case ast.AnnAssign(target=ast.Name(name)) | ast.Assign(targets=[ast.Name(name)]):
            return {name}
    return set()


def _used(statement: ast.stmt) -> Iterator[str]:
    return (node.id for node in ast.walk(statement) if isinstance(node, ast.Name))
