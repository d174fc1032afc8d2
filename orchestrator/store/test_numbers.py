"""Which number each test has: a table that only grows, so what was read once is remembered."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import select

from orchestrator.domain.facts import TestFact
from orchestrator.domain.identity import split_nodeid
from orchestrator.store.column_types import short, storable
from orchestrator.store.sessions import Sessions
from orchestrator.store.sql import insert_into, slices
from orchestrator.store.tables import TestCaseRow

Key = tuple[str, str]
"""Job and node id."""

_REMEMBERED = 100_000
"""Of one product; those of a larger suite are looked up again."""


class TestCases:
    """The numbers of the tests of one database."""

    __test__ = False

    def __init__(self, sessions: Sessions, *, remembered: int = _REMEMBERED) -> None:
        self._sessions = sessions
        self._remembered = remembered
        self._known: dict[str, dict[Key, int]] = {}

    def number(self, product: str, tests: Mapping[Key, TestFact]) -> dict[int, TestFact]:
        """The facts by the tests' numbers, in their order; new tests are stored first."""
        known = self._known.setdefault(product, {})
        unknown = [key for key in tests if key not in known]
        if unknown:
            if len(known) + len(unknown) > self._remembered:
                # Another one, and not emptied: other threads may be looking into the old one.
                self._known[product] = known = {}
                unknown = list(tests)
            known.update(self._look_up(product, unknown))
        numbered: dict[int, TestFact] = {}
        for key, fact in tests.items():
            number = known[key]
            # Two names may be one once what cannot be stored is replaced.
            same = numbered.get(number)
            numbered[number] = same.plus(fact) if same else fact
        return numbered

    def _look_up(self, product: str, keys: Sequence[Key]) -> dict[Key, int]:
        digests = {key: _digest(product, key) for key in keys}
        found = self._find(list(digests.values()))
        missing = {digest: key for key, digest in digests.items() if digest not in found}
        if missing:
            self._add(product, missing)
            found |= self._find(list(missing))
        return {key: found[digest] for key, digest in digests.items()}

    def _find(self, digests: Sequence[bytes]) -> dict[bytes, int]:
        found: dict[bytes, int] = {}
        with self._sessions.read() as session:
            for some in slices(digests):
                query = select(TestCaseRow.digest, TestCaseRow.id)
                rows = session.execute(query.where(TestCaseRow.digest.in_(some)))
                found.update((digest, number) for digest, number in rows)
        return found

    def _add(self, product: str, missing: Mapping[bytes, Key]) -> None:
        # In one order: two who add the same tests at once do not wait in a circle. By name, as
        # the first by number are what people are shown of thousands.
        rows = [_row(product, digest, key) for digest, key in missing.items()]
        rows.sort(key=lambda row: (row["job"], storable(row["nodeid"])))
        with self._sessions.write() as session:
            statement = insert_into(session, TestCaseRow).on_conflict_do_nothing()
            session.connection().execute(statement, rows)


def _digest(product: str, key: Key) -> bytes:
    job, nodeid = key
    whole = "\x00".join((storable(product), short(job), storable(nodeid)))
    return hashlib.sha256(whole.encode()).digest()


def _row(product: str, digest: bytes, key: Key) -> dict[str, Any]:
    job, nodeid = key
    path, classes, function, param = split_nodeid(nodeid)
    return {
        "digest": digest,
        "product": product,
        "job": short(job),
        "nodeid": nodeid,
        "path": path,
        "class": classes,
        "function": function,
        "param": param,
    }
