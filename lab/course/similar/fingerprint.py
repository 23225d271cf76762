"""A module's fingerprint: k-grams of its tokens, of which winnowing keeps a few.

Schleimer, Wilkerson and Aiken, "Winnowing: local algorithms for document fingerprinting", SIGMOD 2003: of each
window of k-grams the smallest hash is kept, so that whatever two texts share of WINDOW + GRAM - 1 tokens is found.

The tokens do not show how a program is written down: names that a student may choose are all one token, as are
texts; comments, docstrings, annotations, parentheses, commas and line ends are none. Functions are apart from each
other, so that their order does not matter; that of statements matters where they touch.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

from lab.base.source import parsed, source_lines

GRAM = 10  # tokens
WINDOW = 4  # k-grams
NAME, TEXT = "a", '"'  # in place of any name that can be chosen, and of any text
DROPPED = {"(", ")", ",", ":", ";", "->", "pass"}
DROPPED_KINDS = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
Place = tuple[int, int]  # line from 1, character from 0
NO_SPAN = (1 << 60, 0), (1 << 60, 0)


@dataclass(frozen=True)
class Fingerprint:
    """Of one module.

    grams  hash of each k-gram -> the lines on which it stands
    kept   those that winnowing keeps
    """

    grams: dict[int, frozenset[int]]
    kept: frozenset[int]


def fingerprint(text: str) -> Fingerprint | None:
    """Of a module's text; None of one that cannot be parsed."""
    tree = parsed(text)
    if tree is None:
        return None
    lines: dict[int, set[int]] = {}
    kept: set[int] = set()
    for tokens in _pieces(text, tree):
        hashes = []
        for at in range(len(tokens) - GRAM + 1):
            gram = tokens[at : at + GRAM]
            digest = hashlib.blake2b("\0".join(word for word, _ in gram).encode(), digest_size=8).digest()
            hashes.append(int.from_bytes(digest, "big"))
            lines.setdefault(hashes[-1], set()).update(line for _, line in gram)
        kept |= winnowed(hashes)
    return Fingerprint({one: frozenset(found) for one, found in lines.items()}, frozenset(kept))


def winnowed(hashes: list[int]) -> set[int]:
    """The smallest hash of each window."""
    windows = range(max(1, len(hashes) - WINDOW + 1))
    return {min(hashes[at : at + WINDOW]) for at in windows} if hashes else set()


def _pieces(text: str, tree: ast.Module) -> list[list[tuple[str, int]]]:
    """(token, line) of each function, and of what is outside of all, without what can be written in other ways."""
    words, skipped, owners = _readings(text, tree)
    pieces: dict[Place, list[tuple[str, int]]] = {}
    before = ""
    waiting = iter(skipped)
    skip = next(waiting, NO_SPAN)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in DROPPED_KINDS or token.string in DROPPED:
            continue
        while skip[1] <= token.start:
            skip = next(waiting, NO_SPAN)
        if skip[0] <= token.start and (skip[0] != token.start or skip[0] not in words):
            continue
        word = NAME if before in ("def", "class") else words.get(token.start, token.string)
        before = token.string
        owner = max((begin for begin, end in owners if begin <= token.start < end), default=(0, 0))
        pieces.setdefault(owner, []).append((word, token.start[0]))
    return list(pieces.values())


def _readings(
    text: str, tree: ast.Module
) -> tuple[dict[Place, str], list[tuple[Place, Place]], list[tuple[Place, Place]]]:
    """What stands at a place in the place's own stead; what is left out; where functions begin and end."""
    lines = source_lines(text)
    ascii_only = text.isascii()
    words: dict[Place, str] = {}
    texts: list[tuple[Place, Place]] = []
    unseen: list[tuple[Place, Place]] = []
    owners: list[tuple[Place, Place]] = []
    imported = dict(_imported(tree))
    chosen = set(_chosen(tree))

    def place(line: int, offset: int) -> Place:
        """Python's syntax tree counts bytes, its tokens characters."""
        return line, offset if ascii_only else len(lines[line - 1].encode()[:offset].decode(errors="replace"))

    def span(node: ast.expr | ast.stmt) -> tuple[Place, Place]:
        return place(node.lineno, node.col_offset), place(node.end_lineno or 1, node.end_col_offset or 0)

    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            known = imported.get(node.id) or (node.id if hasattr(builtins, node.id) else NAME)
            words[span(node)[0]] = NAME if node.id in chosen else known
        elif isinstance(node, ast.arg):
            words[place(node.lineno, node.col_offset)] = NAME
            if node.annotation is not None:
                unseen.append(span(node.annotation))
        elif isinstance(node, ast.Attribute) and node.attr in chosen:
            line, end = span(node)[1]
            words[line, end - len(node.attr)] = NAME
        elif isinstance(node, ast.keyword) and node.arg in chosen:
            words[place(node.lineno, node.col_offset)] = NAME
        elif isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            texts.append(span(node))
            words[span(node)[0]] = TEXT
        elif isinstance(node, ast.AnnAssign):
            unseen.append(span(node.annotation))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            unseen.append(span(node))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            owners.append(span(node))
            unseen += [span(node.returns)] if node.returns else []
        if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                unseen.append(span(first))
    for begin, _ in unseen:
        words.pop(begin, None)
    return words, _outermost([*texts, *unseen]), owners


def _outermost(spans: list[tuple[Place, Place]]) -> list[tuple[Place, Place]]:
    """In their order, without those that lie in others."""
    found: list[tuple[Place, Place]] = []
    for span in sorted(spans, key=lambda span: (span[0], (-span[1][0], -span[1][1]))):
        if not found or span[0] >= found[-1][1]:
            found.append(span)
    return found


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """(name here, what it is), whatever it is called here: dist -> torch.distributed."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (alias.asname, alias.name) if alias.asname else (alias.name.partition(".")[0],) * 2
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _chosen(tree: ast.Module) -> Iterator[str]:
    """Names that the module gives: variables, arguments, functions, classes, attributes that it sets."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and not isinstance(node.ctx, ast.Load):
            yield node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
