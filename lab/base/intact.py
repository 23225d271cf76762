"""Functions that a stranger's code in the same process may replace: kept apart from it, and looked at afterwards.

Nothing in a Python process is out of reach of the code in it, so neither is a wall. The usual ways, to set another
function in a module or to give a function other code, have no effect on a private copy, and are noticed.
"""

from __future__ import annotations

import builtins
import itertools
import sys
from collections.abc import Callable, Iterable
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

# What of a module is compared. Not its other values: a counter or a cache may well change.
_KINDS = (FunctionType, BuiltinFunctionType, type, ModuleType)


_settled: dict[str, ModuleType] = {}  # the lab's modules that were imported when settle() was called
_count = 0  # of all modules then


def settle() -> None:
    """Remember the lab's modules that are imported now: from here on modules_below() looks at later ones only.

    For a process from which others are forked. In these, to look at a module or its name is to count a reference
    to it, which copies its page: 2,000 pages for all that torch has imported.
    """
    global _count
    _settled.update((name, module) for name, module in sys.modules.items() if name.startswith("lab."))
    _count = len(sys.modules)


def modules_below(*names: str) -> list[ModuleType]:
    """The modules of these names, and those of the lab below them, that are imported now."""
    below = tuple(f"{name}." for name in names)
    found = [name for name in (*_settled, *_later()) if name in names or name.startswith(below)]
    return [sys.modules[name] for name in dict.fromkeys([*found, *names]) if name in sys.modules]


def _later() -> list[str]:
    """The names of the modules that were imported since settle(): they come last."""
    while _count:
        try:
            return list(itertools.islice(reversed(sys.modules), max(0, len(sys.modules) - _count)))[::-1]
        except RuntimeError:  # another thread has just imported one
            continue
    return list(sys.modules)


def private(function: Any, modules: Iterable[ModuleType]) -> Any:
    """A copy of a function that calls, in place of the functions of these modules, copies of them.

    Whatever is set in the modules from now on, the copies do not see it. Classes, and functions with a closure,
    are not copied.
    """
    homes = {module.__name__: dict(vars(module)) for module in modules}
    copies: dict[int, FunctionType] = {}
    for value in [value for home in homes.values() for value in home.values()]:
        if isinstance(value, FunctionType) and value.__module__ in homes and not value.__closure__:
            home = homes[value.__module__]
            copies[id(value)] = copy = FunctionType(value.__code__, home, value.__name__, value.__defaults__)
            copy.__kwdefaults__, copy.__qualname__ = value.__kwdefaults__, value.__qualname__
    for home in homes.values():
        home.update({name: copies[id(value)] for name, value in home.items() if id(value) in copies})
    return copies.get(id(function), function)


def _of_our_own(kind: type) -> bool:
    """Not one of PyTorch's at heart, which wraps the methods of an optimizer when it is first used."""
    room = kind.__module__.partition(".")[0]
    return room != "builtins" and all(
        base.__module__.partition(".")[0] in (room, "builtins") for base in kind.mro()
    )


def watched(modules: Iterable[ModuleType]) -> Callable[[], list[str]]:
    """Remember the functions and classes of these modules, and Python's own.

    Returns:
        A function that names those which are not what they were: "lab.ranks.wire.encode". It has all it uses in
        its closure, so that nothing set in a module reaches it.
    """
    table, is_a, function, module_kind, variables = sys.modules, isinstance, FunctionType, ModuleType, vars

    def state(value: Any) -> Any:
        return (value.__code__, value.__defaults__, value.__kwdefaults__) if is_a(value, function) else None

    known: list[tuple[str, Any, list[tuple[str, Any, Any]]]] = []
    for module in [*modules, builtins]:
        known.append((module.__name__, module, []))
        for value in vars(module).values():
            if isinstance(value, type) and value.__module__ == module.__name__ and _of_our_own(value):
                known.append((f"{module.__name__}.{value.__qualname__}", value, []))
    for _, owner, members in known:
        members += [
            (name, value, state(value)) for name, value in vars(owner).items() if isinstance(value, _KINDS)
        ]

    def changed() -> list[str]:
        found = []
        for name, owner, members in known:
            if is_a(owner, module_kind) and table.get(name) is not owner:
                found.append(name)
            now = variables(owner)
            for member, value, before in members:
                if now.get(member) is not value or state(value) != before:
                    found.append(f"{name}.{member}")
        return found

    return changed
