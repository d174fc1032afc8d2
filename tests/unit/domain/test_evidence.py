from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.evidence import LINE_LIMIT_BYTES, Event, EvidenceError, read_events
from tests.unit.domain.builders import line

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda deeper: st.lists(deeper, max_size=3) | st.dictionaries(st.text(), deeper, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(st.text(), JSON, max_size=3), max_size=8), st.data())
def test_any_chunking_gives_the_same_events(
    parts: list[dict[str, object]], data: st.DataObject
) -> None:
    whole = b"".join(line(n, data=part) for n, part in enumerate(parts, 1))
    expected, used = read_events(whole, after_seq=0)
    assert used == len(whole)
    assert [event.seq for event in expected] == list(range(1, len(parts) + 1))

    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    got: list[Event] = []
    start = 0
    for end in [*cuts, len(whole)]:
        events, used = read_events(whole[start:end], after_seq=len(got))
        got += events
        start += used
    assert got == expected


def test_lines_that_were_ingested_are_passed_over() -> None:
    chunk = line(1) + line(2) + line(3)
    events, used = read_events(chunk, after_seq=2)
    assert [event.seq for event in events] == [3]
    assert used == len(chunk)


def test_a_torn_last_line_is_left() -> None:
    chunk = line(1) + line(2)[:-1]
    events, used = read_events(chunk, after_seq=0)
    assert (len(events), used) == (1, len(line(1)))
    assert read_events(b"{", after_seq=0) == ([], 0)


def test_a_gap_is_refused() -> None:
    with pytest.raises(EvidenceError, match="event 2 is missing: 3 came instead"):
        read_events(line(1) + line(3), after_seq=0)


def test_an_endless_line_is_refused() -> None:
    with pytest.raises(EvidenceError, match="a line of more than"):
        read_events(b"x" * (LINE_LIMIT_BYTES + 1), after_seq=0)


@pytest.mark.parametrize(
    "bad",
    [
        b"\n",
        b"nonsense\n",
        b"[]\n",
        b"null\n",
        b"\xff\xfe\n",
        b"[" * 100_000 + b"\n",
        line(1, v=2),
        line(1, kind="rumour"),
        line(1, kind=["log"]),
        line(1, ts="now"),
        line(1, ts=float("nan")),
        line(1, ts=-1),
        line(1, ts=10**400),
        line(1, job=5),
        line(1, data="text"),
        line("1"),  # type: ignore[arg-type]
    ],
    ids=lambda raw: repr(raw[:60]),
)
def test_what_is_no_event_is_refused(bad: bytes) -> None:
    with pytest.raises(EvidenceError):
        read_events(bad, after_seq=0)


def test_nothing_that_a_database_refuses_gets_through() -> None:
    raw = b'{"v":1,"seq":1,"ts":1,"kind":"log","job":"a\\u0000",'
    raw += b'"data":{"x\\ud800":["\\u0000",NaN]}}\n'
    (event,), _ = read_events(raw, after_seq=0)
    assert event.job == "a\ufffd"
    assert event.data == {"x?": ["\ufffd", None]}


def test_escaped_pairs_stay_what_they_mean() -> None:
    (event,), _ = read_events(line(1, data={"x": "\U0001f600 \u00e9"}), after_seq=0)
    assert event.data == {"x": "\U0001f600 \u00e9"}
