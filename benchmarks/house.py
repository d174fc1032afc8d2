"""Size and shape of the product's code: `make house`; with `--groups`, each look-alike group.

Files and lines of the product without the payload; record classes (classes with annotated fields),
and groups of them that look alike: both have at least three fields, and share 70 % of the larger
one's; circles of modules that import one another when they are loaded.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import networkx as nx

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("orchestrator", "reports", "runners")
LEAST_FIELDS = 3
ALIKE = 0.7


def sources() -> dict[str, Path]:
    """Return every module of the product by its dotted name."""
    found = {}
    for folder in PRODUCT:
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def records(tree: ast.Module) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield each record class's name, with the names of its fields."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            fields = frozenset(
                one.target.id
                for one in node.body
                if isinstance(one, ast.AnnAssign)
                and isinstance(one.target, ast.Name)
                and "ClassVar" not in ast.unparse(one.annotation)
            )
            if fields:
                yield node.name, fields


def groups_alike(found: list[frozenset[str]]) -> list[list[int]]:
    """Return groups of positions of record classes that all look alike."""
    group = list(range(len(found)))

    def head(index: int) -> int:
        while group[index] != index:
            index = group[index]
        return index

    for (i, one), (j, other) in combinations(enumerate(found), 2):
        most = max(len(one), len(other))
        if min(len(one), len(other)) >= LEAST_FIELDS and len(one & other) / most >= ALIKE:
            group[head(i)] = head(j)
    groups: dict[int, list[int]] = defaultdict(list)
    for index in range(len(found)):
        groups[head(index)].append(index)
    return sorted((group for group in groups.values() if len(group) > 1), key=len, reverse=True)


def imports(module: str, path: Path, tree: ast.Module, known: set[str]) -> set[str]:
    """Return the product's modules that a module imports when it is loaded."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found = set()
    for node in tree.body:
        if isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*(above if node.level else []), *filter(None, [node.module])])
            found |= {f"{base}.{one.name}" if f"{base}.{one.name}" in known else base
                      for one in node.names}  # fmt: skip
    return (found & known) - {module}


def main() -> None:
    modules = sources()
    trees = {name: ast.parse(path.read_text()) for name, path in modules.items()}
    classes = [(module, *one) for module, tree in trees.items() for one in records(tree)]
    alike = groups_alike([fields for _, _, fields in classes])
    graph = nx.DiGraph(
        (name, other)
        for name, tree in trees.items()
        for other in imports(name, modules[name], tree, set(modules))
    )
    circles = [one for one in nx.strongly_connected_components(graph) if len(one) > 1]
    rows = {
        "files": len(modules),
        "lines": sum(path.read_text().count("\n") for path in modules.values()),
        "record classes": len(classes),
        "groups of classes that look alike": len(alike),
        "classes in such groups": sum(map(len, alike)),
        "circles of modules": len(circles),
    }
    for name, value in rows.items():
        print(f"{name:36} {value:>8,}")
    for circle in circles:
        print("  circle:", ", ".join(sorted(circle)))
    for group in alike if "--groups" in sys.argv[1:] else []:
        print(len(group), *(".".join(classes[index][:2]) for index in group), sep="\n    ")


if __name__ == "__main__":
    main()
