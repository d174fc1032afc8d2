"""Names are those of the glossary, and have none of the words that it does not use."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click import Group

from orchestrator.cli.app import whole
from orchestrator.store.tables import TableBase

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| (?P<words>[a-z, ]+) \| [^|]+ \|$", re.MULTILINE)
AMBIGUOUS = frozenset({"candidate", "feed", "kinds", "reach", "room"})
"""Words with another meaning in functions, parameters and fields."""
COLUMN = re.compile(r'Column\(\s*"[a-z_]*",\s*f?"(?P<label>[^"]*)"')


def unused() -> frozenset[str]:
    """The words of the glossary's list of those that are not used."""
    page = (ROOT / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8")
    part = page.partition("## Words that are not used")[2].partition("\n## ")[0]
    rows = [row["words"].split(", ") for row in ROW.finditer(part) if row["words"] != "not"]
    return frozenset(word for row in rows for word in row)


def words_of(name: str) -> set[str]:
    """``RunEvent``, ``run_event`` and ``/run-events/{id}`` have the words run and event(s)."""
    parts = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)
    words = {part.lower() for part in parts}
    return words | {word.removesuffix("s") for word in words}


def tables() -> Iterator[str]:
    for table in TableBase.metadata.tables.values():
        yield table.name
        yield from (f"{table.name}.{column.name}" for column in table.columns)


def answers() -> Iterator[str]:
    document = json.loads((ROOT / "tests" / "golden" / "openapi.json").read_text("utf-8"))
    for path, methods in document["paths"].items():
        yield path
        yield from (one["operationId"] for one in methods.values())
    for name, schema in document["components"]["schemas"].items():
        yield name
        yield from (f"{name}.{field}" for field in schema.get("properties", {}))
        yield from (f"{name}={value}" for value in schema.get("enum", ()))


def keys() -> Iterator[str]:
    """Keys in the JSON of reports and of the command line."""

    def within(path: str, item: object) -> Iterator[str]:
        for each in item if isinstance(item, list) else ():
            yield from within(path, each)
        for key, each in item.items() if isinstance(item, dict) else ():
            yield f"{path}.{key}"
            yield from within(f"{path}.{key}", each)

    for file in sorted((ROOT / "tests" / "golden" / "reports").glob("*.json")):
        yield from within(file.stem, json.loads(file.read_text("utf-8")))
    schema = json.loads((ROOT / "docs" / "reference" / "cli.schema.json").read_text("utf-8"))
    for name, record in schema["$defs"].items():
        yield name
        yield from (f"{name}.{field}" for field in record.get("properties", {}))


def commands() -> Iterator[str]:
    def below(command: Group, path: str) -> Iterator[str]:
        for name, one in command.commands.items():
            yield f"{path} {name}"
            yield from (f"{path} {name} {' '.join(each.opts)}" for each in one.params)
            if hasattr(one, "commands"):
                yield from below(one, f"{path} {name}")

    yield from below(whole(), "")  # type: ignore[arg-type]


def definitions() -> Iterator[str]:
    """Modules and classes of the product."""
    for folder in ("orchestrator", "reports", "runners"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            yield file.stem
            for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                if isinstance(node, ast.ClassDef):
                    yield f"{file.stem}.{node.name}"


def functions() -> Iterator[str]:
    """Functions of the product, with their parameters."""
    for folder in ("orchestrator", "reports", "runners"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    every = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
                    yield f"{file.stem}.{node.name}"
                    yield from (f"{file.stem}.{node.name}({one.arg})" for one in every)


def fields() -> Iterator[str]:
    """Fields of classes, members of enumerations, attributes, aliases of types, constants."""
    for folder in ("orchestrator", "reports", "runners"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            tree = ast.parse(file.read_text("utf-8"))
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    yield from (f"{file.stem}.{node.name}.{name}" for name in assigned(node.body))
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                    yield f"{file.stem}.{node.attr}"
            yield from (f"{file.stem}.{name}" for name in assigned(tree.body))


def assigned(body: list[ast.stmt]) -> Iterator[str]:
    """Names that the statements assign themselves, without those in nested definitions."""
    for one in body:
        targets = one.targets if isinstance(one, ast.Assign) else [getattr(one, "target", None)]
        for target in targets:
            for name in ast.walk(target) if target else ():
                if isinstance(name, ast.Name):
                    yield name.id


def labels() -> Iterator[str]:
    for file in sorted((ROOT / "orchestrator" / "dashboard").rglob("*.py")):
        yield from (found["label"] for found in COLUMN.finditer(file.read_text("utf-8")))


def titles() -> Iterator[str]:
    """Columns of the command line's tables."""
    for file in sorted((ROOT / "orchestrator" / "cli").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.keyword) and node.arg == "titles":
                yield from (
                    each.value
                    for each in ast.walk(node.value)
                    if isinstance(each, ast.Constant) and isinstance(each.value, str)
                )


@pytest.mark.parametrize("names", [tables, answers, commands, labels, titles, definitions, keys])
def test_no_name_has_a_word_that_is_not_used(names) -> None:
    found = list(names())
    assert len(found) > 50, "nothing was looked at"
    assert {name for name in found if words_of(name) & unused()} == set()


def test_no_function_has_a_word_that_is_not_used() -> None:
    found = list(functions())
    assert len(found) > 10_000, "nothing was looked at"
    # The file's own name is another test's.
    names = {name for name in found if words_of(name.partition(".")[2]) & (unused() - AMBIGUOUS)}
    assert names == set()


def test_no_field_has_a_word_that_is_not_used() -> None:
    found = list(fields())
    assert len(found) > 5_000, "nothing was looked at"
    names = {name for name in found if words_of(name.partition(".")[2]) & (unused() - AMBIGUOUS)}
    assert names == set()


def test_the_list_is_read() -> None:
    assert {"sitting", "cluster", "reach"} <= unused()
    assert words_of("/runs/{run_id}/TrialAsk_of") >= {"run", "trial", "ask", "of"}
