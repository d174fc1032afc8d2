"""What a person writes for the reports of a run: read strictly, and kept once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from orchestrator.adapters.files.documents import FileDocuments
from orchestrator.domain.annotation import MOST_ANNOTATIONS, Annotation, check_annotations, unsaid
from orchestrator.domain.document_problems import InvalidDocumentError

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HEAD = "apiVersion: seatrial/v1\nkind: Annotations\n"
NOTE = Annotation(kind="note", text="Seen.", author="R. Eader")


def read(text: str, *cells: str) -> tuple[Annotation, ...]:
    return FileDocuments().read_annotations(HEAD + text, "notes.yaml", cells=cells)


def refused(text: str, *cells: str) -> str:
    with pytest.raises(InvalidDocumentError) as caught:
        read(text, *cells)
    return str(caught.value)


def test_a_file_is_signed_once_and_each_may_be_signed_by_itself():
    first, second = read(
        "author: R. Eader\nannotations:\n"
        "  - {kind: fix, title: Mended, files: [a.py], at: 2026-01-18, cell: gcp-l4}\n"
        "  - {kind: recommendation, text: Pin torch., author: W. Riter}\n",
        "gcp-l4",
    )
    assert first == Annotation(
        kind="fix",
        title="Mended",
        files=("a.py",),
        at="2026-01-18",
        cell="gcp-l4",
        author="R. Eader",
    )
    assert (second.author, second.cell) == ("W. Riter", "")
    assert first.stated(NOW).at == datetime(2026, 1, 18, tzinfo=UTC)
    assert second.stated(NOW).at == NOW


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("- {kind: fxi, text: a, author: b}", "line 4, column 10: annotations.0.kind: 'fxi'"),
        ("- {kind: fix, text: a}", "line 4, column 3: annotations.0.author: is missing"),
        ("- {kind: fix, author: a}", "line 4, column 3: annotations.0: needs a title or a text"),
        (
            "- {kind: fix, text: a, author: b, cell: gcp-l5}",
            "line 4, column 41: annotations.0.cell: the run",
        ),
        ("- {kind: fix, text: a, author: b, at: soon}", "annotations.0.at: 'soon' is no date"),
        ("- {kind: fix, text: a, author: b, at: 0001-01-01}", "is no date"),
        ("- {kind: fix, text: a, autor: b}", "did you mean 'author'?"),
        ('- {kind: fix, title: "a\\nb", author: b}', "annotations.0.title: must be one line"),
        ('- {kind: fix, text: "a\\e[2J", author: b}', "has a character that no text has"),
        ("[]", "annotations: there is none"),
    ],
)
def test_what_is_wrong_is_said_at_its_place(line: str, said: str):
    text = f"annotations:\n{line}\n" if line.startswith("-") else f"annotations: {line}\n"
    assert said in refused(text, "gcp-l4")


def test_a_cell_that_is_nearly_right_is_suggested():
    text = "annotations: [{kind: note, text: a, author: b, cell: gcp-l5}]\n"
    assert "did you mean 'gcp-l4'?" in refused(text, "gcp-l4")


@pytest.mark.parametrize(
    ("written", "path"),
    [
        (Annotation(kind="note", text="x" * 65_537, author="a"), ("annotations", 0, "text")),
        (Annotation(kind="note", title="x" * 301, author="a"), ("annotations", 0, "title")),
        (Annotation(kind="note", text="x", author="a", files=("f",) * 201),
         ("annotations", 0, "files")),
        (Annotation(kind="note", text="x", author="a", files=("a\nb",)),
         ("annotations", 0, "files", 0)),
        (Annotation(kind="note", text="\ud800", author="a"), ("annotations", 0, "text")),
        (Annotation(kind="note", text="a\x00", author="a"), ("annotations", 0, "text")),
        (Annotation(kind="note", text="a", author=" "), ("annotations", 0, "author")),
    ],
)  # fmt: skip
def test_sizes_and_signs_are_bounded(written: Annotation, path: tuple[str | int, ...]):
    assert [problem.path for problem in check_annotations([written], [])] == [path]


def test_so_many_at_once_and_not_one_more():
    assert list(check_annotations([NOTE] * MOST_ANNOTATIONS, [])) == []
    [problem] = check_annotations([NOTE] * (MOST_ANNOTATIONS + 1), [])
    assert problem.path == ("annotations",)


def test_the_same_again_is_known_whenever_it_is_said_again():
    [kept] = unsaid([NOTE, NOTE], [], at=NOW)
    later = NOW + timedelta(days=1)
    assert unsaid([NOTE], [kept], at=later) == ()
    dated = Annotation(kind="note", text="Seen.", author="R. Eader", at="2026-03-02")
    [other] = unsaid([dated], [kept], at=later)
    assert other.at == datetime(2026, 3, 2, tzinfo=UTC)
    assert unsaid([dated], [kept, other], at=later) == ()
