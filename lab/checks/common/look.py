"""Where in the student's file to look: a line found in the source text, which is read and never run."""

import ast
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lab.base.source import parsed, searchable
from lab.checks.common.syntax import (
    argument_of,
    assignments,
    calls_of,
    find,
    lines_within,
    names_of,
    only_says,
    read,
    root_of,
    unpacked_at,
    uses,
    with_defaults,
    written_to,
)

_Function = ast.FunctionDef | ast.AsyncFunctionDef

RETURN = r"\breturn\b"


@dataclass(frozen=True)
class Look:
    """Where to look in one function of the student's code; call it with what the line looks like.

    code      the student's folder
    file      the module, "data.py", below that folder
    function  "get_dataloaders" or "CNN.forward"
    """

    code: Path
    file: str
    function: str

    @property
    def name(self) -> str:
        """What the file is called where a line of it is named."""
        return Path(self.file).name

    def into(self, function: str) -> "Look":
        """The same in another function of the file."""
        return replace(self, function=function)

    def __call__(self, *patterns: str, last: bool = False) -> str:
        """A place such as "data.py:90  sampler = DistributedSampler(...)".

        Args:
            patterns: regular expressions. The first line of code of the function that one of them matches is
                shown, an earlier pattern before a later one; without a match, the function's first line.
                `return` is looked for outside of functions within the function.
            last: show the last line that matches instead.
        """
        lines = read(self.code / self.file)
        node = find(lines, self.function)
        if node is None:
            return f"{self.function} in {self.name}"
        has_docstring = ast.get_docstring(node, clean=False) is not None
        first = node.body[min(has_docstring, len(node.body) - 1)].lineno
        body = range(first, (node.end_lineno or node.lineno) + 1)
        inner = {
            number
            for part in ast.walk(node)
            if isinstance(part, _Function) and part is not node
            for number in range(part.lineno, (part.end_lineno or part.lineno) + 1)
        }
        for pattern in patterns:
            for number in reversed(body) if last else body:
                text = lines[number - 1].split("#")[0].strip()
                if pattern == RETURN and number in inner:
                    continue
                if re.search(pattern, searchable(text)):
                    return at(self.name, number, text)
        if RETURN in patterns:  # there is none: it belongs where the function ends
            end = node.body[-1].lineno
            return at(self.name, end, lines[end - 1].split("#")[0].strip())
        return f"{self.name}:{node.lineno}  def {node.name}(...)"

    def source(self) -> tuple[list[str], ast.Module | None, _Function | None]:
        """The lines of the file, its tree, and that of the function; None where there is no such thing."""
        lines = read(self.code / self.file)
        return lines, parsed("\n".join(lines)), find(lines, self.function)

    def line(self, number: int) -> str:
        """The place of a line of the file, as a rank reports it; the function's first line where there is none."""
        lines = read(self.code / self.file)
        if not 1 <= number <= len(lines):
            return self()
        return at(self.name, number, lines[number - 1].split("#")[0].strip())

    def source_of(
        self, function: str, keyword: str, position: int | None = None, *, first: str = "", like: str = ""
    ) -> str:
        """The place where an argument of a call comes from; "" where there is no such call or argument.

        That is the line that has made the variable which is handed on, and not another one that looks alike and is
        handed to nobody; or the line of the argument itself.

        Args:
            function: what is called, "fully_shard".
            keyword, position: of the argument.
            first: a pattern for the first argument, where there are several such calls.
            like: of several lines that make the variable, one that this pattern matches goes first.
        """
        lines = read(self.code / self.file)
        node = find(lines, self.function)
        for call in calls_of(node, function) if node else ():
            given = {one.arg: one.value for one in call.keywords}
            value = given.get(
                keyword, call.args[position] if position is not None and position < len(call.args) else None
            )
            handed = ast.unparse(call.args[0]) if call.args else ""
            if value is None or not re.search(first, searchable(handed)):
                continue
            names = [part.id for part in ast.walk(value) if isinstance(part, ast.Name)]
            made = [
                line
                for name in names
                for line in sorted(assignments(node, name), reverse=True)  # type: ignore[arg-type]
                if line < call.lineno
            ]
            alike = [line for line in made if re.search(like, searchable(lines[line - 1]))]
            return self.line([*alike, *made, value.lineno][0])
        return ""

    def left_early(self) -> str:
        """The place of a `return` or `break` inside of a loop, in a branch of it; "" where there is none."""
        node = find(read(self.code / self.file), self.function)
        for loop in ast.walk(node) if node else ():
            if isinstance(loop, ast.For | ast.While):
                leaves = [part.lineno for part in ast.walk(loop) if isinstance(part, ast.Return | ast.Break)]
                if leaves:
                    return self.line(min(leaves))
        return ""

    def in_finally(self) -> str:
        """The place of a `return` in a `finally`, which drops the error that is on its way; "" without one."""
        node = find(read(self.code / self.file), self.function)
        for part in ast.walk(node) if node else ():
            lines = [
                one.lineno
                for last in getattr(part, "finalbody", ())
                for one in ast.walk(last)
                if isinstance(one, ast.Return)
            ]
            if lines:
                return self.line(min(lines))
        return ""

    def keywords(self, number: int) -> list[str]:
        """What the calls in a line of the file name: their keyword arguments; "**" where a dict is unpacked."""
        tree = parsed("\n".join(read(self.code / self.file)))
        calls = [part for part in ast.walk(tree) if isinstance(part, ast.Call)] if tree else []
        found = [keyword.arg for call in calls if call.lineno == number for keyword in call.keywords]
        return [name or "**" for name in found]

    def unpacked_in(self, number: int) -> str:
        """The place where the dict was made that a call in a line unpacks, f(**name); "" without one."""
        node = find(read(self.code / self.file), self.function)
        made = unpacked_at(node, number) if node else 0
        return self.line(made) if made else ""

    def in_branch(self, pattern: str, *, line: int = 0) -> str:
        """The first line like this that stands under an `if` of the function; "" where there is none.

        Args:
            line: only this one.
        """
        return self._within(ast.If, pattern, line)

    def in_loop(self, pattern: str) -> str:
        """The same in a loop of the function."""
        return self._within(ast.For | ast.While, pattern)

    def _within(self, kind: Any, pattern: str, line: int = 0) -> str:
        lines = read(self.code / self.file)
        node = find(lines, self.function)
        within = lines_within(node, kind) if node else set()
        for number in sorted(within & {line} if line else within):
            text = lines[number - 1].split("#")[0].strip()
            if re.search(pattern, searchable(text)):
                return at(self.name, number, text)
        return ""

    def made_before(self, number: int) -> str:
        """The place where the first argument of the call in a line was made, in whichever function that is.

        The line itself, where that is said in it; "" where there is no such call.
        """
        tree = parsed("\n".join(read(self.code / self.file)))
        made = argument_of(tree, number) if tree else 0
        return self.line(made) if made else ""

    def into_method(self, name: str) -> "Look | None":
        """The same in a method of a class of the file that the function uses; None where no such class has it."""
        tree = parsed("\n".join(read(self.code / self.file)))
        for part in tree.body if tree else ():
            if not isinstance(part, ast.ClassDef) or not self.mentions(part.name):
                continue
            if any(isinstance(one, _Function) and one.name == name for one in part.body):
                return self.into(f"{part.name}.{name}")
        return None

    def kept(self) -> str:
        """Where the function keeps something from call to call; its first line where it does so nowhere.

        In a cache that decorates it, or under a name that outlives the call: of the module, of a class or a
        function, or of a default argument.
        """
        lines = read(self.code / self.file)
        tree, node = parsed("\n".join(lines)), find(lines, self.function)
        if tree is None or node is None:
            return self()
        for decorator in node.decorator_list:
            if re.search(r"cache", searchable(ast.unparse(decorator))):
                return at(self.name, decorator.lineno, lines[decorator.lineno - 1].strip())
        functions = [part for part in ast.walk(node) if isinstance(part, _Function)]
        outliving = names_of(tree) | {argument.arg for part in functions for argument in with_defaults(part)}
        changed = {
            root for root in map(root_of, written_to(node)) if root in outliving or root in ("type", "globals")
        }
        changed |= {name for part in ast.walk(node) if isinstance(part, ast.Global) for name in part.names}
        numbers = [
            part.lineno
            for statement in node.body
            for part in ast.walk(statement)
            if isinstance(part, ast.Name) and part.id in changed
        ]
        return at(self.name, min(numbers), lines[min(numbers) - 1].split("#")[0].strip()) if numbers else self()

    def never_raises(self) -> str:
        """The place of what looks like a refusal and is none; "" where there is no such thing.

        That is an exception that is made and not raised, a line under an `if` that only prints or warns, or an
        assertion of a tuple, which is always true.
        """
        lines = read(self.code / self.file)
        node = find(lines, self.function)
        for part in ast.walk(node) if node else ():
            tuple_asserted = isinstance(part, ast.Assert) and isinstance(part.test, ast.Tuple)
            said = [one for one in getattr(part, "body", []) if only_says(one)] if isinstance(part, ast.If) else []
            if tuple_asserted:
                return at(self.name, part.lineno, lines[part.lineno - 1].strip())  # type: ignore[attr-defined]
            if said and not any(isinstance(one, ast.Raise | ast.Return) for one in ast.walk(part)):
                return at(self.name, said[0].lineno, lines[said[0].lineno - 1].strip())
        return ""

    def under(self, pattern: str) -> str:
        """The place of the innermost `if` around the first line that the pattern matches; "" where it has none."""
        node, number = find(read(self.code / self.file), self.function), line_of(self(pattern))
        around = [
            part.lineno
            for part in (ast.walk(node) if node and number else ())
            if isinstance(part, ast.If) and part.lineno <= number <= (part.end_lineno or 0)
        ]
        return self.line(max(around)) if around else ""

    def kept_default(self) -> str:
        """The place of what outlives a call of the function: the first default that is no constant; "" if none."""
        lines = read(self.code / self.file)
        node = find(lines, self.function)
        defaults = [*node.args.defaults, *filter(None, node.args.kw_defaults)] if node else []
        found = [one.lineno for one in defaults if isinstance(one, ast.List | ast.Dict | ast.Set | ast.Call)]
        return at(self.name, found[0], lines[found[0] - 1].strip()) if found else ""

    def asserts(self) -> str:
        """The place of the function's first assertion; "" where it has none."""
        lines = read(self.code / self.file)
        node = find(lines, self.function)
        found = [part.lineno for part in ast.walk(node) if isinstance(part, ast.Assert)] if node else []
        return at(self.name, min(found), lines[min(found) - 1].strip()) if found else ""

    def mentions(self, name: str) -> bool:
        """Whether the body of the function uses the variable, attribute or function `name`."""
        node = find(read(self.code / self.file), self.function)
        return node is not None and uses(node.body, name)


def at(file: str, number: int, text: str = "") -> str:
    """ "data.py:90  sampler = ..."; just "data.py" when the line is not known."""
    if number < 1:
        return file
    text = " ".join(text.split())
    return f"{file}:{number}" + (f"  {text if len(text) <= 80 else text[:77] + '...'}" if text else "")


def line_of(place: str) -> int:
    """ "main.py:91  model = ..." -> 91; 0 where there is no line, or only that of a function's name."""
    found = re.match(r"[\w.]+:(\d+)  (?!def )", searchable(place))
    return int(found[1]) if found else 0
