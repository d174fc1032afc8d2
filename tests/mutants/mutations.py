"""Mutations of Python source: what one small edit of an expression or a statement can break."""

from __future__ import annotations

import ast
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

COMPARISONS = {
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Is: "is not",
    ast.IsNot: "is",
}
ARITHMETIC = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
}


@dataclass(frozen=True, slots=True)
class Edit:
    """One node replaced: `kind` of mutation, the node, and the source that stands in its place."""

    kind: str
    node: ast.expr | ast.stmt
    new: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """One edit of one file, as whole lines, so that it can be found again when lines have moved."""

    file: str
    line: int
    kind: str
    old: str
    new: str

    def moved(self, root: Path) -> Mutant:
        """The mutant at the number that its first line has below the root: the nearest match.

        Raises:
            LookupError: The file does not contain the lines any more, or is gone.
        """
        path = root / self.file
        if not path.is_file():
            raise LookupError(f"{self.file} is not there any more")
        lines = path.read_text("utf-8").splitlines(keepends=True)
        wanted = self.old.splitlines(keepends=True)
        size = len(wanted)
        found = [at + 1 for at in range(len(lines)) if lines[at : at + size] == wanted]
        if not found:
            raise LookupError(f"{self.file}:{self.line}: these lines are not there any more")
        return replace(self, line=min(found, key=lambda number: abs(number - self.line)))

    def plant(self, root: Path) -> str:
        """Edit the file below the root where its lines are now; returns its old text.

        Raises:
            LookupError: See `moved`.
        """
        first = self.moved(root).line - 1
        text = (root / self.file).read_text("utf-8")
        lines = text.splitlines(keepends=True)
        lines[first : first + len(self.old.splitlines())] = [self.new]
        (root / self.file).write_text("".join(lines), "utf-8")
        return text


def draw(files: dict[str, str], size: int, seed: int) -> list[Mutant]:
    """A random sample of mutants, as many of each kind, by file and line.

    Args:
        files: The source of each file by its name.
        size: How many mutants.
        seed: The same seed draws the same mutants from the same files.
    """
    kinds = defaultdict(list)
    for file, text in sorted(files.items()):
        for edit in edits(ast.parse(text)):
            kinds[edit.kind].append((file, edit))
    source = random.Random(seed)
    for candidates in kinds.values():
        source.shuffle(candidates)
    names = sorted(kinds)
    drawn = [kinds[names[number % len(names)]].pop() for number in range(size)]
    mutants = [as_lines(file, files[file], edit) for file, edit in drawn]
    return sorted(mutants, key=lambda mutant: (mutant.file, mutant.line))


def as_lines(file: str, text: str, edit: Edit) -> Mutant:
    """The edit as the whole lines before and after it."""
    lines = text.splitlines(keepends=True)
    node = edit.node
    first, last = lines[node.lineno - 1], lines[(node.end_lineno or node.lineno) - 1]
    head = first.encode()[: node.col_offset].decode()
    tail = last.encode()[node.end_col_offset :].decode()
    old = "".join(lines[node.lineno - 1 : node.end_lineno])
    return Mutant(file, node.lineno, edit.kind, old, head + edit.new + tail)


def edits(tree: ast.AST) -> Iterator[Edit]:
    """Every edit of the code below a node; docstrings, annotations and f-strings are left alone."""
    for node in evaluated(tree):
        if isinstance(node, ast.stmt):
            yield from of_statement(node)
        elif isinstance(node, ast.Constant):
            yield from of_constant(node)
        elif isinstance(node, ast.expr):
            yield from of_operator(node)


def evaluated(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below one that a running program evaluates for their value."""
    for name, field in ast.iter_fields(node):
        if name in ("annotation", "returns", "type_params", "decorator_list"):
            continue
        for child in field if isinstance(field, list) else [field]:
            if isinstance(child, ast.AST) and not ignored(child):
                yield child
                yield from evaluated(child)


def ignored(node: ast.AST) -> bool:
    """Docstrings, f-strings, types, and what is imported for types alone."""
    match node:
        case ast.Expr(value=ast.Constant()) | ast.JoinedStr():
            return True
        case ast.Subscript(value=ast.Name(id="Literal" | "Annotated")):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
    return False


def of_statement(node: ast.stmt) -> Iterator[Edit]:
    """A returned value becomes None; a statement is removed."""
    match node:
        case ast.Return(value=ast.expr() as value):
            if not (isinstance(value, ast.Constant) and value.value is None):
                yield Edit("returned value", node, "return None")
        case ast.Expr(value=ast.Call() | ast.Await()):
            yield Edit("removed statement", node, "pass")
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript(), *_]) | ast.AugAssign():
            yield Edit("removed statement", node, "pass")
        case ast.Raise() | ast.Continue() | ast.Break():
            yield Edit("removed statement", node, "pass")


def of_constant(node: ast.Constant) -> Iterator[Edit]:
    """Truth is inverted, a number grows by one, a text becomes another."""
    match node.value:
        case bool():
            yield Edit("constant", node, repr(not node.value))
        case int() | float():
            yield Edit("constant", node, repr(node.value + 1))
        case str() if node.value:
            yield Edit("constant", node, repr(f"not {node.value}"))


def of_operator(node: ast.expr) -> Iterator[Edit]:
    """A comparison, a boolean operator or an arithmetic one becomes its neighbour."""
    match node:
        case ast.Compare(ops=[op], left=left, comparators=[right]):
            new = f"{operand(left)} {COMPARISONS[type(op)]} {operand(right)}"
            yield Edit("comparison", node, f"({new})")
        case ast.BoolOp(op=op, values=values):
            word = " or " if isinstance(op, ast.And) else " and "
            yield Edit("boolean", node, f"({word.join(map(operand, values))})")
        case ast.UnaryOp(op=ast.Not(), operand=value):
            yield Edit("boolean", node, operand(value))
        case ast.BinOp(op=op, left=left, right=right) if type(op) in ARITHMETIC:
            if is_text(left) or is_text(right):
                return  # two texts joined, or two parts of a path
            swapped = ast.BinOp(left, ARITHMETIC[type(op)](), right)
            yield Edit("arithmetic", node, f"({ast.unparse(swapped)})")


def is_text(node: ast.expr) -> bool:
    """Whether it is written as a text."""
    return isinstance(getattr(node, "value", None), str) or isinstance(node, ast.JoinedStr)


def operand(node: ast.expr) -> str:
    """Its source, as one operand."""
    return f"({ast.unparse(node)})"
