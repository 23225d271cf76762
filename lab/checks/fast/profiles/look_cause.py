"""Where the code that gives each moment of a step its cause has gone wrong."""

import ast
from collections.abc import Collection
from typing import Any

from lab.checks.common.look import RETURN, Look
from lab.checks.common.look_around import with_helpers
from lab.checks.common.syntax import assignments


def made_under(look: Look, key: str) -> str:
    """Where the value is made that is kept under a key, in a dict or with `[key] =`; "" where that is not said."""
    _, _, node = look.source()
    for part in ast.walk(node) if node else ():
        value: ast.expr | None = None
        if isinstance(part, ast.Dict):
            pairs = zip(part.keys, part.values, strict=True)
            value = next(
                (one for name, one in pairs if isinstance(name, ast.Constant) and name.value == key), None
            )
        elif isinstance(part, ast.Assign):
            under = [one.slice for one in part.targets if isinstance(one, ast.Subscript)]
            kept = [one.value for one in under if isinstance(one, ast.Constant)]
            value = part.value if key in kept else None
        if value is None or isinstance(value, ast.Constant):
            continue
        lines = assignments(node, value.id) if node and isinstance(value, ast.Name) else []
        return look.line(max((line for line in lines if line < value.lineno), default=value.lineno))
    return ""


def chosen_key(look: Look) -> str:
    """Where the key is chosen under which something is kept or added, `times[key] += ...`; "" without one."""
    _, _, node = look.source()
    for part in ast.walk(node) if node else ():
        target = part.target if isinstance(part, ast.AugAssign) else None
        if not isinstance(target, ast.Subscript) or isinstance(target.slice, ast.Constant):
            continue
        if not isinstance(target.slice, ast.Name) or node is None:
            return look.line(target.lineno)
        name = target.slice.id
        values = {
            one.lineno: one.value
            for one in ast.walk(node)
            if isinstance(one, ast.Assign)
            and any(isinstance(it, ast.Name) and it.id == name for it in one.targets)
        }
        # Under a name for what a loop goes through, it is chosen where that loop begins.
        looped = [one.id for one in values.values() if isinstance(one, ast.Name)]
        lines = [line for one in (name, *looped) for line in _bound(node, one)]
        chosen = [line for line in lines if not isinstance(values.get(line), ast.Constant | ast.Name)]
        return look.line(min(chosen or lines, default=target.lineno))
    return ""


def _bound(node: ast.AST, name: str) -> list[int]:
    """The lines that assign to a variable, which is another one than that of a comprehension."""
    scopes = [part.target for part in ast.walk(node) if isinstance(part, ast.comprehension)]
    own = {id(part) for scope in scopes for part in ast.walk(scope)}
    return [
        part.lineno
        for part in ast.walk(node)
        if isinstance(part, ast.Name)
        and part.id == name
        and isinstance(part.ctx, ast.Store)
        and id(part) not in own
    ]


def own_order(look: Look, names: Collection[str], but: str) -> str:
    """An order that the function gives to these names: a list or tuple of them, or a dict that ranks them.

    In the function, or in a value of the module that it reads, other than `but`; "" where there is none.
    """
    _, tree, _ = look.source()
    functions = with_helpers(look)
    read = {part.id for node in functions for part in ast.walk(node) if isinstance(part, ast.Name)} - {but}
    outside: list[ast.stmt] = [
        part
        for part in (tree.body if tree else ())
        if isinstance(part, ast.Assign) and read & {getattr(target, "id", "") for target in part.targets}
    ]
    for part in (part for node in (*functions, *outside) for part in ast.walk(node)):
        if not isinstance(part, ast.Dict | ast.List | ast.Tuple):
            continue
        if isinstance(part, ast.Dict):
            ranks = [one.value for one in part.values if isinstance(one, ast.Constant)]
            said: list[Any] = part.keys if len(set(ranks)) > 1 else []
        else:
            said = part.elts
        if {one.value for one in said if isinstance(one, ast.Constant)} >= set(names):
            return look.line(part.lineno)
    return ""


def returned_from(look: Look) -> str:
    """Where the variable was made that the function returns; its last `return`, where it returns none."""
    _, _, node = look.source()
    returns = [part for part in ast.walk(node) if isinstance(part, ast.Return)] if node else []
    last = max(returns, key=lambda one: one.lineno, default=None)
    names = [one.id for one in ast.walk(last) if isinstance(one, ast.Name)] if last else []
    made = [line for name in names for line in assignments(node, name)] if node else []
    return look.line(min(made)) if made else look(RETURN)
