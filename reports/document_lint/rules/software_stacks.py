"""Rules on software: which versions were compared, and their names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from reports.document_lint.document import AcrossRule, Document, DocumentRule, Mark, MarkdownTable
from reports.document_lint.parsing import quantities
from reports.document_lint.rules.hardware import boards_in

_MARKED = re.compile(r"†|(?i:different stacks?|same stack|same software|confounded|torch \d)")


@dataclass(frozen=True, slots=True)
class StatedVersion:
    """A version that a document states for a board."""

    document: Document
    line: int
    board: str
    what: str
    """``PyTorch`` or ``CUDA``."""
    version: str


_WHAT = {
    "pytorch": "PyTorch", "pytorch version": "PyTorch", "cuda": "CUDA", "cuda version": "CUDA",
}  # fmt: skip


def stacks(document: Document) -> Iterator[StatedVersion]:
    """Return versions by board."""
    for table in document.tables:
        for row in table.body:
            boards = boards_in(" ".join(row.cells))
            for name, cell in zip(table.header, row.cells, strict=False):
                if len(boards) == 1 and name.lower() in ("pytorch", "cuda", "torch"):
                    what = "CUDA" if name.lower() == "cuda" else "PyTorch"
                    yield StatedVersion(document, row.line, boards[0].name, what, cell)
    for pair in document.pairs:
        what = _WHAT.get(pair.key.lower(), "")
        if not what:
            continue
        gpu = [p.value for p in document.pairs if p.path == pair.path and p.key == "GPU"]
        boards = boards_in(" ".join(gpu)) or boards_in(document.title)
        if len(boards) == 1:
            yield StatedVersion(document, pair.line, boards[0].name, what, pair.value)


def compared_tables(document: Document) -> Iterator[tuple[MarkdownTable, tuple[str, ...]]]:
    """Return tables that compare measurements of several boards."""
    for table in document.tables:
        columns = boards_in(" | ".join(table.header))
        rows = boards_in(" | ".join(row.label for row in table.body))
        boards = columns if len(columns) > 1 else rows
        if len(boards) > 1 and _measures(table):
            yield table, tuple(board.name for board in boards)


def _measures(table: MarkdownTable) -> bool:
    title = " ".join((*table.path[-1:], *table.header))
    if re.search(r"(?i)cost|instance", title) or any("$" in c for r in table.rows for c in r.cells):
        return False
    units = [q for row in table.body for cell in row.cells[1:] for q in quantities(cell)]
    return any(q.seconds is not None or q.is_rate or q.unit == "x" for q in units) or bool(
        re.search(r"(?i)speed-?up|throughput", title)
    )


def _cells(table: MarkdownTable) -> Iterator[tuple[str, ...]]:
    return (row.cells for row in table.rows)


def check(document: Document) -> Iterator[Mark]:
    """Find compared boards with different or unstated software."""
    known = list(stacks(document))
    for table, boards in compared_tables(document):
        if any(_MARKED.search(" ".join(cells)) for cells in (table.header, *_cells(table))):
            continue
        for what in ("PyTorch", "CUDA"):
            versions = {s.board: s.version for s in known if s.what == what and s.board in boards}
            if len(set(versions.values())) > 1:
                told = ", ".join(f"{board}: {version}" for board, version in versions.items())
                message = f"compared across different {what} versions ({told}), and not marked so"
                yield Mark("warning", table.line, message)
        silent = [b for b in boards if not any(s.board == b for s in known)]
        if silent:
            message = f"compares {' and '.join(boards)}: the software of {' and '.join(silent)}"
            yield Mark("warning", table.line, f"{message} is not stated")


def check_across(documents: Sequence[Document]) -> Iterator[tuple[Document, Mark]]:
    """Find comparisons whose software only other documents state."""
    known = [stated for document in documents for stated in stacks(document)]
    for document in documents:
        own = {stated.board for stated in stacks(document)}
        for table, boards in compared_tables(document):
            if set(boards) <= own:
                continue
            versions = {
                board: {s.version for s in known if s.what == "PyTorch" and s.board == board}
                for board in boards
            }
            if all(versions.values()) and len(set.union(*versions.values())) > 1:
                told = "; ".join(f"{b}: {', '.join(sorted(v))}" for b, v in versions.items())
                message = f"compared across different stacks, by the other documents ({told})"
                yield document, Mark("warning", table.line, message)


PRODUCTS = (("KernelPyTorch", "TorchBridge"),)
"""Names that one product had."""
_STAMP = re.compile(r"\b([A-Z]\w+) v(\d+\.\d+\.\d+)")


def _tells_both(document: Document, names: Sequence[str]) -> bool:
    return all(name.lower() in document.words for name in names)


def check_names(documents: Sequence[Document]) -> Iterator[tuple[Document, Mark]]:
    """Find a product under several names."""
    for names in PRODUCTS:
        used = {
            name: document
            for document in documents
            for name in names
            if name.lower() in document.words and not _tells_both(document, names)
        }
        if len(used) > 1:
            told = " and ".join(f"{name} ({document.name})" for name, document in used.items())
            yield documents[0], Mark("warning", 1, f"one product under several names: {told}")


def check_versions(document: Document) -> Iterator[Mark]:
    """Find different versions of one product within the document."""
    found: dict[str, dict[str, int]] = {}
    for line in document.everything:
        for name, version in _STAMP.findall(line.text):
            found.setdefault(name, {}).setdefault(version, line.number)
    for name, versions in found.items():
        if len(versions) > 1:
            told = ", ".join(f"v{v} (line {n})" for v, n in versions.items())
            message = f"{name} is stamped with several versions: {told}"
            yield Mark("warning", max(versions.values()), message)


def check_regions(documents: Sequence[Document]) -> Iterator[tuple[Document, Mark]]:
    """Find one instance type in different regions."""
    found: dict[str, dict[str, tuple[Document, int]]] = {}
    for document in documents:
        for line in document.everything:
            for region in re.findall(r"\b(?:us|eu|ap|sa|ca)-[a-z]+-\d\b", line.text):
                found.setdefault("AWS", {}).setdefault(region, (document, line.number))
    for regions in found.values():
        if len(regions) > 1 and len({document.name for document, _ in regions.values()}) > 1:
            told = ", ".join(f"{r} ({d.name}:{n})" for r, (d, n) in regions.items())
            first, number = next(iter(regions.values()))
            message = f"the documents ran in different regions, which they compare: {told}"
            yield first, Mark("note", number, message)


RULES = (
    DocumentRule("stack", "compared columns that ran different software",
         "Compare on one stack, or mark every figure that does not.", check),
    DocumentRule("version-stamp", "several versions of the product in one document",
         "Prove what was under test: print the version that was imported.", check_versions),
)  # fmt: skip
ACROSS = (
    AcrossRule("stack", "compared columns that ran different software",
               "Compare on one stack, or mark every figure that does not.", check_across),
    AcrossRule("name", "one product under several names",
               "Use one name, and say once what it was called.", check_names),
    AcrossRule("region", "different regions that nobody speaks of",
               "Print region and zone with each result.", check_regions),
)  # fmt: skip
