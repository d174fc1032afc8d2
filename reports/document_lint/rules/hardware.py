"""Rules on accelerators: a document against vendor specifications and against itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from orchestrator.domain.accelerators import MODELS, AcceleratorModel
from reports.document_lint.document import AcrossRule, Document, DocumentRule, Line, Mark
from reports.document_lint.parsing import Printed, quantities

BOARDS = tuple(model for model in MODELS if model.instances)
"""Models whose instance types are known."""
ARCHITECTURES = ("Volta", "Turing", "Ampere", "Ada Lovelace", "Ada", "Hopper", "Blackwell")
FP8_SINCE = 8.9
"""Minimum compute capability with FP8 tensor cores."""

_NAMES = re.compile(rf"(?<![\w-])({'|'.join(b.name for b in BOARDS)})(?![\w-])")
_INSTANCE = re.compile(
    r"(?<![\w.])((?:g|p|gr)\d\w{0,3}\.\d{0,3}\w{1,10}|[a-z]\d-\w{1,20}-\d{1,4}g?)(?![\w.])"
)
_BY_NAME = {board.name: board for board in BOARDS}


def boards_in(text: str) -> tuple[AcceleratorModel, ...]:
    """Return the distinct accelerators named in a text."""
    return tuple(dict.fromkeys(_BY_NAME[name] for name in _NAMES.findall(text)))


def instances_in(text: str) -> Iterator[tuple[str, AcceleratorModel]]:
    """Return the instance types in a text with a known accelerator."""
    for name in _INSTANCE.findall(text):
        for board in BOARDS:
            if name.startswith(board.instances):
                yield name, board


def same_architecture(a: str, b: str) -> bool:
    """Whether names mean one architecture, such as ``Ada`` and ``Ada Lovelace``."""
    return a.lower().split()[0] == b.lower().split()[0]


_FAMILY = "|".join(ARCHITECTURES)
_IS = re.compile(rf"(?i)\b(?P<board>\w+)\s+is\s+(?:an?\s+)?(?P<family>{_FAMILY})\b")
_DETECTED = re.compile(rf"(?i)architecture[^:|]*[:|]\s*(?P<family>{_FAMILY})\b")
_CAPABILITY = re.compile(rf"(?i)(?<![\d.])(?P<number>\d{{1,2}}\.\d)\s*\((?P<family>{_FAMILY})\b")
_FA3 = re.compile(r"(?i)\bFlash\s?Attention[- ]?3\b|\bFA3\b")
_FP8_NEEDS = re.compile(r"(?i)(?:H100|Hopper)\b[^.;|]*\b(?:required|needed)|use H100|not Hopper")
_MEMORY = re.compile(r"(?i)\bmemory\b|vram|\bgpu\b|accelerator")
_BYTES = {"GB": 1e9, "GiB": 2.0**30, "MiB": 2.0**20, "MB": 1e6}


def boards_of(document: Document, line: Line | None = None) -> tuple[AcceleratorModel, ...]:
    """Return the boards of a line: by its words, its headings, or the document."""
    for text in (line.text, *reversed(line.path)) if line is not None else ():
        found = boards_in(text)
        if found:
            return found
    said = " ".join(p.value for p in document.pairs if p.key.lower() in ("gpu", "accelerator"))
    return boards_in(f"{document.title} {said}")


def _tables(document: Document) -> Iterator[tuple[int, str]]:
    for table in document.tables:
        for row in table.rows:
            yield row.line, " ".join(row.cells)


def check_architecture(document: Document) -> Iterator[Mark]:
    """Check architecture names against boards and compute capabilities."""
    for line in document.everything:
        yield from _named(document, line)
        for found in _CAPABILITY.finditer(line.text):
            known = [b for b in BOARDS if b.capability == found["number"]]
            if known and not same_architecture(known[0].architecture, found["family"]):
                message = f"{found[0]}: {found['number']} is {known[0].architecture}"
                yield Mark("error", line.number, message)
    yield from _capabilities(document)


def _named(document: Document, line: Line) -> Iterator[Mark]:
    found = _IS.search(line.text)
    board = next(iter(boards_in(found["board"])), None) if found else None
    if found is None or board is None:
        found = _DETECTED.search(line.text)
        about = boards_of(document, line) if found else ()
        board = about[0] if len(about) == 1 else None
    if found and board and not same_architecture(board.architecture, found["family"]):
        message = (
            f"{line.text.strip(' ✅')!r}: {board.name} is {board.architecture} "
            f"(compute capability {board.capability})"
        )
        yield Mark("error", line.number, message)


def _capabilities(document: Document) -> Iterator[Mark]:
    for line, text in _lines_with(document, r"(?i)compute"):
        about = boards_of(document, Line(line, text))
        for number in re.findall(r"(?<![\d.])(\d{1,2}\.\d)(?![\d.])", text.partition("|")[2]):
            if len(about) == 1 and number != about[0].capability:
                message = f"compute capability {number}: {about[0].name} has {about[0].capability}"
                yield Mark("error", line, message)


def _lines_with(document: Document, pattern: str) -> Iterator[tuple[int, str]]:
    for pair in document.pairs:
        if re.search(pattern, pair.key):
            yield pair.line, f"{' '.join(pair.path[-1:])} {pair.key}|{pair.value}"


def check_fp8(document: Document) -> Iterator[Mark]:
    """Find statements that a board with FP8 tensor cores has none."""
    able = [b for b in _every_board(document) if float(b.capability) >= FP8_SINCE]
    able = [board for board in able if board.architecture != "Hopper"]
    if not able:
        return
    for line in document.everything:
        if "fp8" not in line.text.lower():
            continue
        denied = re.search(r"(?i)fp8[^:|]*enabled[^:|]*:\s*false", line.text)
        found = denied or _FP8_NEEDS.search(line.text)
        if found:
            message = (
                f"{line.text.strip(' ✅')!r}: {able[0].name} ({able[0].architecture}, "
                f"{able[0].capability}) has FP8 tensor cores, so that Hopper is not needed"
            )
            yield Mark("warning", line.number, message)


def _every_board(document: Document) -> tuple[AcceleratorModel, ...]:
    found = [board for line in document.everything for board in boards_in(line.text)]
    return tuple(dict.fromkeys(found))


def check_attention(document: Document) -> Iterator[Mark]:
    """Check FlashAttention-3, which requires Hopper."""
    boards = [board for board in _every_board(document) if board.name != "H100"]
    if not boards or any(b.architecture == "Hopper" for b in boards):
        return
    names = " and ".join(f"{board.name} ({board.architecture})" for board in boards)
    for line in document.everything:
        if _FA3.search(line.text):
            message = f"FlashAttention-3 needs Hopper: on {names} something else ran"
            yield Mark("warning", line.number, message)
            return


def check_instance(document: Document) -> Iterator[Mark]:
    """Find rows with an instance type and a board that it does not have."""
    for number, text in _tables(document):
        boards = boards_in(text)
        for name, board in instances_in(text):
            if boards and board not in boards:
                yield Mark("error", number, f"{name} has {board.name}, not {boards[0].name}")
    kinds = [p for p in document.pairs if "instance" in p.key.lower()]
    about = boards_of(document)
    for pair in kinds:
        for name, board in instances_in(pair.value):
            same = [p for p in document.pairs if p.path == pair.path and p.key == "GPU"]
            here = boards_in(" ".join(p.value for p in same)) or about
            if here and board not in here:
                yield Mark("error", pair.line, f"{name} has {board.name}, not {here[0].name}")


Memory = tuple[Document, int, Printed]


def memories(document: Document) -> dict[str, list[Memory]]:
    """Return the stated memory by board."""
    found: dict[str, list[Memory]] = {}
    for line, text in _memory_lines(document):
        about = boards_of(document, line)
        if len(about) > 1 and not re.search(r"(?i)both", text):
            continue
        sizes = [q for q in quantities(text) if q.unit in _BYTES and q.value * _BYTES[q.unit] > 8e9]
        for board in about:
            found.setdefault(board.name, []).extend((document, line.number, q) for q in sizes)
    return found


def _memory_lines(document: Document) -> Iterator[tuple[Line, str]]:
    for pair in document.pairs:
        if _MEMORY.search(pair.key) and not re.search(r"(?i)system|disk|host", pair.key):
            text = f"{pair.key}: {pair.value}"
            yield Line(pair.line, pair.value, pair.path), text
    for table in document.tables:
        column = table.column(r"memory")
        for row in table.rows if column is not None else ():
            if column is not None:
                yield Line(row.line, " ".join(row.cells), table.path), row.cells[column]
    for line in document.texts:
        if re.search(r"(?i)\d\s?GB VRAM", line.text):
            yield line, f"both {line.text}"


def check_memory(documents: Sequence[Document]) -> Iterator[tuple[Document, Mark]]:
    """Check that a board has one memory size."""
    found: dict[str, list[Memory]] = {}
    for document in documents:
        for board, said in memories(document).items():
            found.setdefault(board, []).extend(said)
    for board, said in found.items():
        first = {q.text.replace(" ", ""): (d, n, q) for d, n, q in reversed(said)}
        distinct = [entry for entry in first.values() if _conflicts(entry[2], first.values())]
        if distinct:
            document, line, _ = distinct[0]
            told = ", ".join(f"{q.text} ({d.name}:{n})" for d, n, q in reversed(distinct))
            message = f"the memory of one {board} is told in {len(distinct)} ways: {told}"
            yield document, Mark("warning", line, message)


def _conflicts(printed: Printed, others: Iterable[Memory]) -> bool:
    """Whether two printed sizes contradict: 23,028 MiB is 24.15 GB, and 24 GB rounded."""
    low, high = (value * _BYTES[printed.unit] for value in (printed.low, printed.high))
    return any(
        other.low * _BYTES[other.unit] >= high or other.high * _BYTES[other.unit] <= low
        for _, _, other in others
        if other is not printed
    )


def check_sold(document: Document) -> Iterator[Mark]:
    """Check stated memory against the marketed size in either unit."""
    for name, said in memories(document).items():
        board = next(board for board in BOARDS if board.name == name)
        for _, line, size in said[:1]:
            if size.unit == "GB" and abs(size.value - board.memory_gb) > max(size.half, 0.2):
                message = (
                    f"{size.text} of memory on {name}, which is sold with {board.memory_gb} GB: "
                    "say MiB as the driver does, and what a GB is"
                )
                yield Mark("note", line, message)


RULES = (
    DocumentRule("architecture", "an architecture that is not the board's, or not the capability's",
         "Take it from the compute capability, as probed.", check_architecture),
    DocumentRule("fp8", "FP8 denied to boards that have it",
         "Compute capability 8.9 and above have FP8 tensor cores: look for the fault in the "
         "software.", check_fp8),
    DocumentRule("flash-attention-3", "FlashAttention-3 where there is no Hopper",
         "Name the kernel that ran.", check_attention),
    DocumentRule("instance", "an instance type with another board than its own",
         "Look it up in the provider's catalogue.", check_instance),
    DocumentRule("memory-unit", "a memory in a unit that cannot be told",
         "Print MiB, as the driver does.", check_sold),
)  # fmt: skip
ACROSS = (
    AcrossRule("memory", "one board's memory told in several ways",
               "Print one figure with one unit: MiB, as probed.", check_memory),
)  # fmt: skip
