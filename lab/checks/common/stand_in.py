"""A recorder in place of a student's function, which sees each call and may hand it on."""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any


def stand_in(
    original: Callable[..., Any], recorder: Callable[..., Any], names: Sequence[str] = ()
) -> Callable[..., Any]:
    """What is called like `original`, and calls recorder(original, arguments), the arguments by name.

    Args:
        names: what the recorder calls the first arguments, in their order. What students call otherwise is told
            by its place. The original that the recorder gets takes these names too.

    Raises:
        WrongArgumentsError: when called, if the original has not so many arguments.
    """
    signature = inspect.signature(original)
    kinds = {parameter.name: parameter.kind for parameter in signature.parameters.values()}
    gathers = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    own = [name for name, kind in kinds.items() if kind not in gathers]
    missing = [name for name in names if name not in own]
    renamed = dict(zip(missing, [name for name in own if name not in names], strict=False))
    back = {theirs: ours for ours, theirs in renamed.items()}

    @functools.wraps(original)
    def by_name(**arguments: Any) -> Any:
        return original(**{renamed.get(name, name): value for name, value in arguments.items()})

    @functools.wraps(original)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            return original(*args, **kwargs)  # which says it with its name
        bound.apply_defaults()
        arguments: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            if kinds[name] is inspect.Parameter.VAR_POSITIONAL:
                arguments |= zip([one for one in names if one not in arguments], value, strict=False)
            elif kinds[name] is inspect.Parameter.VAR_KEYWORD:
                arguments |= value  # each by the name that the caller gave it
            else:
                arguments[back.get(name, name)] = value
        for name in names:
            if name not in arguments:
                raise WrongArgumentsError(f"{original.__name__}() has no argument for {name}")
        return recorder(by_name, arguments)

    return recorded


def named_like(real: type) -> Callable[[type], type]:
    """For a class that stands in for `real`: by its name, too, it is one."""

    def named(kind: type) -> type:
        kind.__name__ = kind.__qualname__ = real.__name__
        for name, method in vars(kind).items():
            if inspect.isfunction(method):
                method.__qualname__ = f"{real.__name__}.{name}"  # as an error names it
        return kind

    return named


def called_alike(original: Callable[..., Any], substitute: Callable[..., Any]) -> Callable[..., Any]:
    """`substitute`, for those who call `original`, however its arguments are called there."""
    names = list(inspect.signature(substitute).parameters)
    return stand_in(original, lambda _, given: substitute(**{name: given[name] for name in names}), names)


class WrongArgumentsError(Exception):
    """main.py calls something with what would only fail later, in a place that misleads."""
