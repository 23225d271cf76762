"""A class of right answers that nobody has copied: the bank's, put together and written by each in an own way.

Each student takes one of the bank's right answers to every exercise, which were written as different programs, and
writes it down as people do: other names, other words in messages, a name for what is returned, an if the other way
round, += spelt out, a comparison turned, a tuple taken apart, a check or a print of one's own.
"""

from __future__ import annotations

import ast
import random
from textwrap import dedent, indent

from answers.all_answers import RIGHT
from answers.bank import SOLUTIONS

from lab.syllabus.stubs import BEGIN, END
from lab.syllabus.syllabus import MODULES, syllabus

WORDS = "batch count data group index item length loss mean model number part result size step sums total value"
WORDS += " acc buf cfg cur dev elem fst grp hist idx kwargs lst nb obj out ptr res smp tmp val world"
FLIPPED = {
    ast.Gt: ast.Lt,
    ast.Lt: ast.Gt,
    ast.GtE: ast.LtE,
    ast.LtE: ast.GtE,
    ast.Eq: ast.Eq,
    ast.NotEq: ast.NotEq,
}

# How many of the bank's right answers to an exercise are in the class. With all of them, some would be in two or
# three of sixty students, which is what a copy looks like.
WAYS = 12


class Manner(ast.NodeTransformer):
    """How one person writes programs: the same wherever the same can be done in two ways."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        habits = ("named_result", "spelt_out", "turned", "other_way", "apart", "prints", "checks", "early")
        self.habits = {name for name in habits if rng.random() < 0.4}

    def often(self, habit: str) -> bool:
        return habit in self.habits and self.rng.random() < 0.8

    def visit_Return(self, node: ast.Return) -> ast.stmt | list[ast.stmt]:
        self.generic_visit(node)
        if node.value is None or isinstance(node.value, ast.Name) or not self.often("named_result"):
            return node
        name = self.rng.choice(WORDS.split())
        return [ast.Assign([ast.Name(name, ast.Store())], node.value), ast.Return(ast.Name(name, ast.Load()))]

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        self.generic_visit(node)
        if not isinstance(node.target, ast.Name) or not self.often("spelt_out"):
            return node
        value = ast.BinOp(ast.Name(node.target.id, ast.Load()), node.op, node.value)
        return ast.Assign([node.target], value)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        if len(node.ops) > 1 or type(node.ops[0]) not in FLIPPED or not self.often("turned"):
            return node
        return ast.Compare(node.comparators[0], [FLIPPED[type(node.ops[0])]()], [node.left])

    def visit_If(self, node: ast.If) -> ast.stmt:
        self.generic_visit(node)
        if not node.orelse or isinstance(node.orelse[0], ast.If) or not self.often("other_way"):
            return node
        return ast.If(ast.UnaryOp(ast.Not(), node.test), node.orelse, node.body)

    def visit_Assign(self, node: ast.Assign) -> ast.stmt | list[ast.stmt]:
        self.generic_visit(node)
        target = node.targets[0]
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple) and self.often("apart"):
            return [ast.Assign([one], value) for one, value in zip(target.elts, node.value.elts, strict=True)]
        if isinstance(target, ast.Name) and self.often("prints") and self.rng.random() < 0.2:
            words = ast.Constant(f"{target.id} is there")
            said = ast.Call(ast.Name("print", ast.Load()), [words, ast.Name(target.id, ast.Load())], [])
            return [node, ast.Expr(said)]
        if isinstance(target, ast.Name) and self.often("checks") and self.rng.random() < 0.2:
            there = ast.Compare(ast.Name(target.id, ast.Load()), [ast.IsNot()], [ast.Constant(None)])
            return [node, ast.Assert(there)]
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return node

    def visit_For(self, node: ast.For) -> ast.stmt | list[ast.stmt]:
        self.generic_visit(node)
        if not isinstance(node.iter, ast.Call) or not self.often("early"):
            return node
        name = self.rng.choice(WORDS.split()) + "s"
        return [
            ast.Assign([ast.Name(name, ast.Store())], node.iter),
            ast.For(node.target, ast.Name(name, ast.Load()), node.body, node.orelse),
        ]


class Renamed(ast.NodeTransformer):
    """Other names for all variables of functions."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        stored = [one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)]
        taken = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
        free = [name for name in WORDS.split() if name not in taken]
        self.rng.shuffle(free)
        new = {name: free.pop() if free else f"{name}_" for name in dict.fromkeys(stored)}
        for one in ast.walk(node):
            if isinstance(one, ast.Name) and one.id in new:
                one.id = new[one.id]
        return node


def _with_regions(text: str, regions: dict[str, str]) -> str:
    """A module of the reference with other code in these regions."""
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        if match := BEGIN.match(line):
            code = regions.get(match[1] + match[2])
            if code is not None:
                inside = True
                lines.append(indent(dedent(code).strip("\n"), line[: len(line) - len(line.lstrip())]))
        elif END.match(line):
            inside = False
        elif not inside:
            lines.append(line)
    return "\n".join(lines) + "\n"


def written_down(tree: ast.Module) -> str:
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def independent(seed: int) -> dict[str, str]:
    """The modules of one student, by file name."""
    rng = random.Random(f"student {seed}")
    regions: dict[str, str] = {}
    for exercise in syllabus().exercises:
        regions |= rng.choice([one for one in RIGHT if one.exercise == exercise.id][:WAYS]).regions
    modules = {f"{name}.py": _with_regions((SOLUTIONS / f"{name}.py").read_text(), regions) for name in MODULES}
    manner = Manner(rng)
    return {
        name: written_down(Renamed(rng).visit(manner.visit(ast.parse(text)))) for name, text in modules.items()
    }


def copied(modules: dict[str, str], seed: int) -> dict[str, str]:
    """The same handed in by somebody else: renamed, functions in another order, formatted anew, with comments."""
    rng = random.Random(f"copy {seed}")
    return {name: _disguised(text, rng) for name, text in modules.items()}


def _disguised(text: str, rng: random.Random) -> str:
    tree = Renamed(rng).visit(ast.parse(text))
    defined = [one for one in tree.body if isinstance(one, ast.FunctionDef)]
    rng.shuffle(defined)
    others = [one for one in tree.body if not isinstance(one, ast.FunctionDef)]
    begin = [one for one in others if not isinstance(one, ast.If)]
    tree.body = [*begin, *defined, *(one for one in others if isinstance(one, ast.If))]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            _swap(node.body, rng)
    text = written_down(tree)
    statements = [one for one in ast.walk(ast.parse(text)) if isinstance(one, ast.Assign | ast.Expr | ast.Return)]
    whole = {one.lineno for one in statements if one.lineno == one.end_lineno}
    lines = []
    for number, line in enumerate(text.splitlines(), 1):
        margin = line[: len(line) - len(line.lstrip())]
        if number in whole and rng.random() < 0.2:
            lines.append(f"{margin}# {rng.choice(WORDS.split())}, as I understand it")
        if number in whole and line.endswith(")") and not {"'", '"'} & set(line) and rng.random() < 0.5:
            begin, _, rest = line.partition("(")
            line = f"{begin}(\n{margin}        " + rest.replace(", ", f",\n{margin}        ")
        lines.append(line)
    text = "\n".join(lines) + "\n"
    ast.parse(text)
    return text


def _swap(body: list[ast.stmt], rng: random.Random) -> None:
    """Two neighbours of which none needs the other change places."""
    for at in range(len(body) - 1):
        one, two = body[at : at + 2]
        if isinstance(one, ast.Assign) and isinstance(two, ast.Assign) and rng.random() < 0.7:
            names = [{n.id for n in ast.walk(each) if isinstance(n, ast.Name)} for each in (one, two)]
            stored = [{n.id for n in ast.walk(each) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
                      for each in (one, two)]  # fmt: skip
            if not (stored[0] & names[1]) and not (stored[1] & names[0]):
                body[at], body[at + 1] = two, one
