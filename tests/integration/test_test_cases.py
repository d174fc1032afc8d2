"""The numbers of tests, however many of them are remembered."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import func, select

from orchestrator.domain.event_facts import TestFact
from orchestrator.store.tables import TestCaseRow
from orchestrator.store.write_results import TestCases


def facts(begin: int, end: int) -> dict[tuple[str, str], TestFact]:
    return {
        ("unit", f"t.py::test_{number}"): TestFact("unit", f"t.py::test_{number}")
        for number in range(begin, end)
    }


def test_tests_that_were_forgotten_have_the_same_numbers_again(database):
    cases = TestCases(database.sessions, remembered=20)
    first = [cases.number("lib", facts(begin, begin + 10), run="r") for begin in range(0, 100, 10)]
    again = [cases.number("lib", facts(begin, begin + 10), run="r") for begin in range(0, 100, 10)]
    assert again == first
    assert len({number for numbered in first for number in numbered}) == 100
    larger = cases.number("lib", facts(0, 100), run="r")
    assert list(larger) == [number for numbered in first for number in numbered]
    with database.sessions.read() as session:
        assert session.scalar(select(func.count()).select_from(TestCaseRow)) == 100


def test_threads_that_make_each_other_forget_lose_nothing(database):
    cases = TestCases(database.sessions, remembered=30)

    def numbered(turn: int) -> dict[int, TestFact]:
        begin = turn % 8 * 20
        return cases.number("lib", facts(begin, begin + 20), run="r")

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(numbered, range(80)))
    for turn, mine in enumerate(found):
        assert mine == found[turn % 8]
