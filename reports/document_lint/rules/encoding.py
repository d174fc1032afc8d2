"""Text that was decoded with the wrong encoding."""

from __future__ import annotations

from collections.abc import Iterator

from reports.document_lint.document import Document, DocumentRule, Mark


def check(document: Document) -> Iterator[Mark]:
    """Return one finding for the whole document."""
    if document.replaced:
        lost = "1 byte is" if document.replaced == 1 else f"{document.replaced} bytes are"
        yield Mark("warning", 1, f"{lost} no UTF-8, and lost")
    if document.garbled:
        many = len(document.garbled)
        lines = f"{many} lines were" if many > 1 else "1 line was"
        message = f"{lines} decoded with the wrong encoding; the text below is read as repaired"
        yield Mark("warning", document.garbled[0], message)


RULES = (
    DocumentRule("encoding", "text that was decoded with the wrong encoding",
         "Write and read UTF-8 throughout.", check),
)  # fmt: skip
