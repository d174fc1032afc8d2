"""Rules that compare figures of several documents."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from reports.document_lint.document import AcrossRule, Document, Mark
from reports.document_lint.parsing import Fraction, fraction, only
from reports.document_lint.rules.hardware import boards_in


def demos(document: Document) -> dict[str, tuple[int, str]]:
    """Return line number and text by demo, from the first table of demos; empty without one."""
    for table in document.tables:
        if table.header and re.search(r"(?i)^demo", table.header[0]):
            return {row.label: (row.line, " ".join(row.cells[1:])) for row in table.body}
    return {}


def check_sets(documents: Sequence[Document]) -> Iterator[tuple[Document, Mark]]:
    """Find demos of one platform's report that another one's omits."""
    known = [(document, demos(document)) for document in documents if demos(document)]
    for document, own in known:
        for other, theirs in known:
            for name in theirs if other is not document else ():
                if name not in own and name.lower() not in document.words:
                    line = min(line for line, _ in own.values())
                    message = f"{name} ran in {other.name}: here it is neither told nor not run"
                    yield document, Mark("warning", line, message)


def counts(document: Document) -> Iterator[tuple[str, str, int, Fraction]]:
    """Yield (board, what, line, share) of everything that a document counts for a board."""
    board = [b.name for b in boards_in(document.title)]
    for table in document.tables:
        for row in table.totals:
            share = _share(row.cells)
            what = "demos" if re.search(r"(?i)^demo", table.header[0]) else "tests"
            if share is not None and len(board) == 1:
                yield board[0], what, row.line, share
    for item in document.items:
        about = [b.name for b in boards_in(" ".join(item.path[-1:]))]
        key, _, value = item.text.partition(":")
        share = fraction(value)
        if share is not None and len(about) == 1 and key.lower() in ("tests", "demos"):
            yield about[0], key.lower(), item.number, share


def _share(cells: Sequence[str]) -> Fraction | None:
    stated = fraction(" ".join(cells[1:]))
    numbers = [only(cell) for cell in cells[1:3]]
    if stated is None and len(numbers) == 2 and numbers[0] and numbers[1]:
        return Fraction(int(numbers[0].value), int(numbers[1].value))
    return stated


def check_counts(documents: Sequence[Document]) -> Iterator[tuple[Document, Mark]]:
    """Find different counts of a board in two documents of one version."""
    first: dict[tuple[str, str, str], tuple[Document, int, Fraction]] = {}
    for document in documents:
        version = _version(document)
        every = list(counts(document))
        times = Counter((board, what, share) for board, what, _, share in every)
        several = {board for board, what, share in times if len(_of(times, board, what)) > 1}
        for board, what, line, share in every:
            if board in several:
                continue
            key = (version, board, what)
            other, at, said = first.setdefault(key, (document, line, share))
            if said != share:
                message = f"{what} of {board}: {share} here, {said} in {other.name}:{at}"
                yield document, Mark("error", line, message)


def _of(times: Counter[tuple[str, str, Fraction]], board: str, what: str) -> list[Fraction]:
    """Return the counts of a document for a board, one per machine."""
    return [share for b, w, share in times if (b, w) == (board, what)]


def _version(document: Document) -> str:
    found = re.search(r"v(\d+\.\d+\.\d+)", document.title)
    return found[1] if found else ""


ACROSS = (
    AcrossRule("not-run-unsaid", "what ran on one platform and is not told of another",
               "List it as not run, with the reason.", check_sets),
    AcrossRule("contradiction", "two documents that count one thing differently",
               "Find out which is right.", check_counts),
)  # fmt: skip
