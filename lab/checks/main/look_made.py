"""Where in the student's main.py a value was made that comes to a call by way of variables and helpers."""

import ast
import re
from collections.abc import Callable, Iterator

from lab.base.source import searchable
from lab.checks.common.look import Look, line_of
from lab.checks.common.syntax import calls_of, names_in

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

GIVEN = ("parse_args", "wrap_model", "build_optimizer", "read_datasets", "loading_options", "main")
_RANK = r"get_rank|\.rank\b|RANK"
_SEEDS = ("torch.manual_seed", "torch.random.manual_seed", "manual_seed")


class WideLook(Look):
    """Looks where the function has no such line in what it may be built of: other functions and methods."""

    def __call__(self, *patterns: str, last: bool = False) -> str:
        place = super().__call__(*patterns, last=last)
        if line_of(place) or not patterns:
            return place
        everywhere = (self.into(name)(*patterns, last=last) for name in self._others())
        return next(filter(line_of, everywhere), place)

    def into(self, function: str) -> Look:
        return Look(self.code, self.file, function)

    def under(self, pattern: str) -> str:
        places = (self.into(name).under(pattern) for name in (self.function, *self._others()))
        return next(filter(None, places), "")

    def _others(self) -> list[str]:
        """The functions of the file that no exercise asks for, and the methods of its classes."""
        _, tree, _ = self.source()
        names = []
        for part in tree.body if tree else ():
            if isinstance(part, ast.ClassDef):
                names += [f"{part.name}.{one.name}" for one in part.body if isinstance(one, ast.FunctionDef)]
            elif isinstance(part, ast.FunctionDef) and part.name not in GIVEN:
                names.append(part.name)
        return [name for name in names if name != self.function]


def condition_of(look: Look, pattern: str) -> str:
    """The innermost `if` around the first line like this, or what made the variable that alone decides there.

    That is where something was worked out: another name for an option is as right as the option. "" where there is
    no `if`.
    """
    place = look.under(pattern)
    _, tree, _ = look.source()
    for part in ast.walk(tree) if tree and place else ():
        if not isinstance(part, ast.If) or part.lineno != line_of(place):
            continue
        test = part.test
        while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            test = test.operand
        made = [
            one.lineno
            for one in ast.walk(tree)  # type: ignore[arg-type]
            if isinstance(one, ast.Assign)
            and not isinstance(one.value, ast.Name | ast.Attribute | ast.Constant)
            and ast.unparse(test) in map(ast.unparse, one.targets)
        ]
        return look.line(max(made)) if made else place
    return place


def seeded_wrong(look: Look, wrong: Callable[[ast.Module, ast.expr], bool]) -> str:
    """The place where the number became wrong that torch was seeded with; "" where nothing looks wrong.

    It is followed back from variable to variable, and from a helper to what that is called with.
    """
    _, tree, _ = look.source()
    for call in calls_of(tree, "manual_seed") if tree else ():
        values = [*call.args, *(one.value for one in call.keywords)]
        if tree and values and ast.unparse(call.func) in _SEEDS and (line := _made(tree, values[0], wrong, set())):
            return look.line(line)
    return ""


def by_rank(tree: ast.Module, value: ast.expr) -> bool:
    """Whether an expression asks for the rank, or has a variable that is the rank or follows from it alone."""
    origins = [
        one for name in names_in(value) if not _helper_of(tree, value, name) for one in _given(tree, value, name)
    ]
    texts = [ast.unparse(value), *(text for one in origins if "seed" not in (text := ast.unparse(one)))]
    return any(re.search(_RANK, searchable(text)) for text in texts)


def is_fixed(tree: ast.Module, value: ast.expr) -> bool:
    """Whether an expression is the same, or one of few, whatever the variables are."""
    number = isinstance(value, ast.Constant) and isinstance(value.value, int)
    return number or (isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mod))


def asks_for_truth(tree: ast.Module, value: ast.expr) -> bool:
    """Whether an expression is another where a number is 0."""
    return any(isinstance(part, ast.BoolOp | ast.IfExp) for part in ast.walk(value))


def _made(tree: ast.Module, value: ast.expr, wrong: Callable[[ast.Module, ast.expr], bool], seen: set[str]) -> int:
    """The line; 0 where nothing is wrong."""
    if wrong(tree, value):
        return value.lineno
    for name in sorted(names_in(value)):
        key = f"{value.lineno} {name}"
        if key in seen:
            continue
        seen.add(key)
        helper = _helper_of(tree, value, name)
        for origin in _handed(tree, helper, name) if helper else _given(tree, value, name):
            if line := _made(tree, origin, wrong, seen):
                return line
    return 0


def _around(tree: ast.Module, value: ast.expr) -> list[_Function]:
    """The functions around an expression, the innermost first."""
    inside = [
        part
        for part in ast.walk(tree)
        if isinstance(part, _Function) and part.lineno <= value.lineno <= (part.end_lineno or 0)
    ]
    return sorted(inside, key=lambda part: (part.lineno, part.col_offset), reverse=True)


def _arguments(node: _Function) -> list[str]:
    return [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]


def _helper_of(tree: ast.Module, value: ast.expr, name: str) -> _Function | None:
    """The function around an expression whose argument a variable is; None where it is none."""
    helpers = [one for one in _around(tree, value) if getattr(one, "name", "") not in (*GIVEN, "run")]
    return next((node for node in helpers if name in _arguments(node)), None)


def _given(tree: ast.Module, value: ast.expr, name: str) -> Iterator[ast.expr]:
    """What the functions around an expression have given to a variable above it, the last first."""
    for node in _around(tree, value):
        made = [
            part
            for part in ast.walk(node)
            if isinstance(part, ast.Assign | ast.AugAssign)
            and part.lineno < value.lineno
            and any(name in names_in(target) for target in _targets(part))
        ]
        yield from (part.value for part in sorted(made, key=lambda part: part.lineno, reverse=True))


def _targets(part: ast.Assign | ast.AugAssign) -> list[ast.expr]:
    return part.targets if isinstance(part, ast.Assign) else [part.target]


def _handed(tree: ast.Module, node: _Function, name: str) -> Iterator[ast.expr]:
    """What a helper is called with for an argument; where it is left out, the default, in the call's line."""
    place, own = _arguments(node).index(name), _name_of(tree, node)
    positional = [*node.args.posonlyargs, *node.args.args]
    defaults = dict(zip([one.arg for one in reversed(positional)], reversed(node.args.defaults), strict=False))
    by_name = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
    defaults |= {one.arg: default for one, default in by_name if default is not None}
    for call in calls_of(tree, own) if own else ():
        first = place - (_arguments(node)[:1] == ["self"])
        given = [*call.args[first : first + 1], *(one.value for one in call.keywords if one.arg == name)]
        if not given and name in defaults:
            given = [ast.copy_location(ast.parse(ast.unparse(defaults[name]), mode="eval").body, call)]
        yield from given


def _name_of(tree: ast.Module, node: _Function) -> str:
    """What a function is called; a lambda by the variable that it is given to; "" where it has no name."""
    if not isinstance(node, ast.Lambda):
        return node.name
    made = [part for part in ast.walk(tree) if isinstance(part, ast.Assign) and part.value is node]
    return ast.unparse(made[0].targets[0]).rpartition(".")[2] if made else ""


def handed_for_training(look: Look, number: int, images: str) -> str:
    """Where a helper is given images for the training set that it makes loaders with; "" where it is not.

    Args:
        number: the line of the helper's call of get_dataloaders().
        images: "test" or "valid".
    """
    _, tree, _ = look.source()
    for call in calls_of(tree, "get_dataloaders") if tree else ():
        if not call.lineno <= number <= (call.end_lineno or 0):
            continue
        named = {one.arg: one.value for one in call.keywords}
        trained, measured = (
            named.get(name, call.args[place] if place < len(call.args) else None)
            for place, name in enumerate(("train_set", "valid_set"))
        )
        while isinstance(trained, ast.Name) and tree and (helper := _helper_of(tree, trained, trained.id)):
            if measured is not None and trained.id in names_in(measured):
                return ""  # the helper itself has taken one for the other
            sites = list(_handed(tree, helper, trained.id))
            said = [one for one in sites if re.search(rf"(?<![A-Za-z]){images}", searchable(ast.unparse(one)))]
            if said:
                return look.line(said[0].lineno)
            trained, measured = (sites[0] if len(sites) == 1 else None), None
    return ""
