"""Code that reaches beyond its exercise: into the checks, the interpreter, or other modules' functions.

Such code can make a check see what is not there, and nothing in a Python process keeps it from that for certain.
No right answer needs it, so a person looks at the lines. It is told from the syntax tree, never from the text:
a comment about sys.modules reaches for nothing. The code is parsed, never run.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Collection, Iterator, Mapping

from lab.base.source import MAX_SOURCE_BYTES
from lab.base.words import one_line

MOST = 6  # places that are named
_MOST_BYTES = 4 * MAX_SOURCE_BYTES  # of all files, for parsing takes time

# Whoever imports these looks into, or makes, what Python otherwise keeps to itself.
_MODULES = {
    *("gc", "ctypes", "inspect", "importlib", "builtins", "pkgutil", "runpy", "zipimport", "imp", "marshal"),
    *("pickle", "code", "codeop", "dis", "opcode", "mock", "faulthandler", "tracemalloc", "bdb", "pdb"),
}
_MODULES_BELOW = ("unittest.mock", "multiprocessing.reduction", "torch.overrides", "torch.utils._python_dispatch")
_CALLED = {"eval", "exec", "compile", "__import__", "__builtins__", "__loader__", "__spec__"}
_ATTRIBUTES = {
    *(
        "__globals__",
        "__code__",
        "__closure__",
        "__builtins__",
        "__subclasses__",
        "__defaults__",
        "__kwdefaults__",
    ),
    *("__loader__", "__spec__", "__wrapped__", "__mro__", "__bases__", "__base__", "__import__", "__reduce__"),
    *("f_back", "f_locals", "f_globals", "f_builtins", "f_code", "tb_frame", "cell_contents", "currentframe"),
    *("gi_frame", "gi_code", "cr_frame", "cr_code", "ag_frame", "ag_code", "walk_stack", "walk_tb"),
    *("_getframe", "_current_frames", "settrace", "setprofile", "addaudithook", "meta_path", "path_hooks"),
    *("FunctionType", "CodeType", "CellType", "FrameType", "TorchFunctionMode", "TorchDispatchMode"),
    *("__torch_function__", "__torch_dispatch__"),
}
_OF_SYS = {
    *("exit", "argv", "stdin", "stdout", "stderr", "platform", "version", "version_info", "hexversion", "maxsize"),
    *("executable", "float_info", "byteorder", "getsizeof", "exc_info", "flags", "stdlib_module_names"),
}
# A rank's connection to the lab is a descriptor, which code can write to without asking anybody.
_OF_OS = {"write", "writev", "pwrite", "pwritev", "sendfile", "dup", "dup2", "fdopen", "pidfd_getfd"}
_SETTINGS = ("torch.backends.", "sys.stdout", "sys.stderr", "os.environ")  # meant to be set


def reaches(modules: Mapping[str, bytes | int]) -> tuple[str, ...]:
    """The places in a submission, "model.py:3 sys.modules", of which a person should know.

    Args:
        modules: path -> content, as lab/course/submissions.py reads them; an int stands for a file left out.
    """
    files = {name: text for name, text in modules.items() if name.endswith(".py") and isinstance(text, bytes)}
    own = {name.removesuffix(".py").partition("/")[0] for name in files}
    found: list[str] = []
    left = _MOST_BYTES
    for name, text in sorted(files.items()):
        if len(text) > min(left, MAX_SOURCE_BYTES):
            found.append(f"{one_line(name, 60)} was not read: there is too much of it")
            continue
        left -= len(text)
        found += [f"{one_line(name, 60)}:{line} {one_line(what, 60)}" for line, what in _in_file(text, own)]
    return (*found[:MOST], *([f"{len(found) - MOST} more"] if len(found) > MOST else []))


def _in_file(text: bytes, own: Collection[str]) -> list[tuple[int, str]]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)  # bytes: with the coding that the file itself names, as Python does
        return sorted(dict(sorted(_Reader(tree, own).found())).items())
    except (SyntaxError, ValueError):
        return []  # nor can it be imported
    except (RecursionError, MemoryError):
        return [(1, "nested too deeply to be read")]


class _Reader:
    """Finds the lines of one file; `roots` are the names that stand for something imported: name -> "torch.nn"."""

    def __init__(self, tree: ast.Module, own: Collection[str]) -> None:
        self.nodes = list(ast.walk(tree))
        self.own = own
        self.roots: dict[str, str] = {}
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    top = alias.name.partition(".")[0]
                    self.roots[alias.asname or top] = alias.name if alias.asname else top
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    self.roots[alias.asname or alias.name] = f"{'.' * node.level}{node.module or ''}.{alias.name}"
        for node in self.nodes:  # `dist = torch.distributed` stands for it too
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name | ast.Attribute):
                path = self.path(node.value)
                for target in node.targets:
                    if path and isinstance(target, ast.Name):
                        self.roots[target.id] = path

    def path(self, node: ast.AST) -> str:
        """ "torch.nn.Module" for what leads to something imported; "" for anything else."""
        if isinstance(node, ast.Name):
            return self.roots.get(node.id, "")
        if isinstance(node, ast.Attribute) and (before := self.path(node.value)):
            return f"{before}.{node.attr}"
        if isinstance(node, ast.Subscript):
            return self.path(node.value)
        if _calls(node, "getattr") and isinstance(node, ast.Call) and (before := self.path(node.args[0])):
            return f"{before}.{_constant(node.args[1]) or '?'}"
        return ""

    def found(self) -> Iterator[tuple[int, str]]:
        values = {id(node.value) for node in self.nodes if isinstance(node, ast.Attribute)}
        said = {id(node.value) for node in self.nodes if isinstance(node, ast.Expr)}  # docstrings
        for node in self.nodes:
            line = getattr(node, "lineno", 1)
            if isinstance(node, ast.Import):
                yield from ((line, f"import {a.name}") for a in node.names if self._odd_import(a.name))
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
                yield from ((line, f"import {name}") for name in names if self._odd_import(name))
            elif isinstance(node, ast.Attribute):
                yield from self._attribute(node)
            elif isinstance(node, ast.Name):
                if node.id in _CALLED or (self.roots.get(node.id) == "sys" and id(node) not in values):
                    yield line, node.id
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
                by_name = node.value.startswith("_") and node.value in _ATTRIBUTES
                if by_name or node.value.startswith(("/proc/", "/dev/fd")):
                    yield line, node.value
            elif isinstance(node, ast.Call):
                yield from self._call(node)
            elif isinstance(node, ast.FunctionDef) and node.name in _ATTRIBUTES:
                yield line, f"def {node.name}"
            for target in _targets(node):
                if isinstance(target, ast.Attribute) and self._foreign(self.path(target)):
                    yield line, f"{self.path(target)} = ..."

    def _odd_import(self, name: str) -> bool:
        top, _, rest = name.partition(".")
        if top == "lab":
            return rest.partition(".")[0] not in ("", "training")
        if top == "sys":
            return bool(rest) and rest not in _OF_SYS
        private = top.startswith("_") and top != "__future__"
        within = f"{name}.".startswith(tuple(f"{one}." for one in _MODULES_BELOW))
        return top in _MODULES or private or within or (top == "os" and rest in _OF_OS) or rest in _ATTRIBUTES

    def _attribute(self, node: ast.Attribute) -> Iterator[tuple[int, str]]:
        path = self.path(node)
        before = path.rpartition(".")[0]
        odd = (before == "sys" and node.attr not in _OF_SYS) or (before == "os" and node.attr in _OF_OS)
        odd = odd or (before == "lab" and node.attr != "training") or bool(path and node.attr == "__dict__")
        if odd or node.attr in _ATTRIBUTES or path.startswith(_MODULES_BELOW):
            yield node.lineno, path or node.attr

    def _call(self, node: ast.Call) -> Iterator[tuple[int, str]]:
        if any(keyword.arg == "fileno" for keyword in node.keywords) or self.path(node.func) == "socket.fromfd":
            yield node.lineno, "a socket of a descriptor"
        if _calls(node, "getattr"):
            before, name = self.path(node.args[0]), _constant(node.args[1])
            if before in ("sys", "os", "lab") and (
                not name or name not in _OF_SYS | {"environ", "getenv", "training"}
            ):
                yield node.lineno, f"getattr({before}, ...)"
        if (_calls(node, "setattr") or _calls(node, "delattr")) and self._foreign(self.path(node.args[0])):
            yield node.lineno, f"setattr({self.path(node.args[0])}, ...)"
        if isinstance(node.func, ast.Name) and node.func.id == "vars" and node.args and self.path(node.args[0]):
            yield node.lineno, f"vars({self.path(node.args[0])})"

    def _foreign(self, path: str) -> bool:
        """Whether what is set there belongs to somebody else's module."""
        top = path.lstrip(".").partition(".")[0]
        return bool(top) and top not in self.own and not path.startswith(_SETTINGS)


def _targets(node: ast.AST) -> Iterator[ast.expr]:
    """What a statement sets or deletes."""
    if isinstance(node, ast.Assign | ast.Delete):
        waiting = list(node.targets)
    elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.For | ast.comprehension):
        waiting = [node.target]
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        waiting = [node.optional_vars]
    else:
        return
    while waiting:
        target = waiting.pop()
        if isinstance(target, ast.Tuple | ast.List):
            waiting += target.elts
        else:
            yield target.value if isinstance(target, ast.Starred) else target


def _calls(node: ast.AST, name: str) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == name
        and len(node.args) >= 2
        and not isinstance(node.args[0], ast.Starred)
    )


def _constant(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
