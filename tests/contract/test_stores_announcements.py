"""What is news, and for whom: a line of verdicts that stands elsewhere, once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orchestrator.domain.channel import ChannelKind
from orchestrator.store.database import Database, open_database
from orchestrator.store.stores import Stores
from tests.contract.outbox_cases import (
    LAST,
    SHA,
    channel,
    claimed,
    ids,
    putting,
    receipt,
    sent,
    told,
)
from tests.databases import NOW, after, together


@pytest.fixture
def put(stores: Stores) -> Callable[..., bool]:
    return putting(stores)


def test_only_a_change_of_a_lines_state_is_news(stores: Stores, put) -> None:
    stores.outbox.add(channel())
    story = [
        ("pass", True), ("pass", False), ("fail", True), ("fail", False), ("late", True),
        ("pass", True), ("pass_with_exceptions", True), ("errored", True), ("errored", False),
        ("inconclusive", True),
    ]  # fmt: skip
    for number, (state, is_news) in enumerate(story):
        assert put(state, f"k-{number}") is is_news, number
    assert sent(stores) == ["k-0", "k-2", "k-4", "k-5", "k-6", "k-7", "k-9"]


def test_lines_stand_for_themselves(stores: Stores, put) -> None:
    assert put("fail", "a", lineage="one")
    assert put("fail", "b", lineage="two")
    assert not put("fail", "c", lineage="one")


def test_a_verdict_that_is_told_after_a_newer_one_is_no_news(stores: Stores, put) -> None:
    stores.outbox.add(channel())
    assert put("pass", "newer", evaluated_at=after(60))
    assert not put("fail", "older", evaluated_at=after(30))
    assert not put("pass", "newest", evaluated_at=after(90)), "it never stood at FAIL"
    assert not put("fail", "older than the newest", evaluated_at=after(75))
    assert put("fail", "of its moment", evaluated_at=after(90))
    assert sent(stores) == ["newer", "of its moment"]


def test_what_tells_of_no_verdict_is_news_whenever_it_comes(stores: Stores, put) -> None:
    assert put("pass", "verdict", evaluated_at=after(60))
    assert put("late", "deadline")
    assert put("pass", "told after its own deadline", evaluated_at=after(60))
    assert put("errored", "firing")
    assert not put("fail", "older", evaluated_at=after(30))


def test_an_older_verdict_does_not_change_the_status_of_its_commit(stores: Stores, put) -> None:
    stores.outbox.add(channel(kind=ChannelKind.GITHUB))
    assert put("pass", "newer", evaluated_at=after(60), git_sha=SHA)
    assert not put("fail", "older", evaluated_at=after(30), git_sha=SHA)
    put("fail", "older, of another commit", evaluated_at=after(30), git_sha="b" * 40)
    assert sent(stores) == ["newer", "older, of another commit"]


def test_news_knows_what_it_was_before(stores: Stores, put) -> None:
    stores.outbox.add(channel())
    for number, state in enumerate(("late", "pass", "fail")):
        put(state, f"k-{number}")
    changes = []
    while (delivery := claimed(stores)) is not None:
        changes.append((delivery.news.change, delivery.news.headline))
        stores.outbox.settle(delivery.id, receipt("accepted"), at=NOW)
    assert changes == [
        ("first", "nightly late"),
        ("recovered", "nightly pass (recovered; it was no verdict by the deadline)"),
        ("broken", "nightly fail (it was PASS)"),
    ]


def test_a_key_is_told_once_even_when_it_would_be_news_again(stores: Stores, put) -> None:
    stores.outbox.add(channel())
    assert put("fail", "k-1")
    assert not put("fail", "k-1")
    assert put("pass", "k-2")
    assert not put("fail", "k-1")
    assert sent(stores) == ["k-1", "k-2"]


def test_a_key_longer_than_an_index_takes_is_still_one_key(stores: Stores, put) -> None:
    key = "schedule:" + "ü" * 5000
    assert put("fail", key + "1")
    assert not put("fail", key + "1")
    assert put("pass", key + "2")


def test_many_at_once_with_one_key_tell_it_once(database: Database, database_url: str) -> None:
    database.stores.outbox.add(channel())
    others = [open_database(database_url) for _ in range(3)]
    doors = [database, *others]
    work = [
        lambda one=one, n=n: one.stores.outbox.put(told("fail", "k"), new_id=ids(f"d{n}"), at=NOW)
        for n, one in enumerate(doors)
    ]
    assert sorted(together(work)) == [False] * 3 + [True]
    assert sent(database.stores) == ["k"]
    for one in others:
        one.close()


def test_many_at_once_with_keys_of_their_own_tell_one_change(
    database: Database, database_url: str
) -> None:
    database.stores.outbox.add(channel())
    other = open_database(database_url)
    work = [
        lambda n=n: (database, other)[n % 2].stores.outbox.put(
            told("fail", f"k-{n}"), new_id=ids(f"d{n}"), at=NOW
        )
        for n in range(6)
    ]
    assert sorted(together(work)) == [False] * 5 + [True]
    assert len(sent(database.stores)) == 1
    other.close()


def test_channels_take_the_lines_that_they_name(stores: Stores, put) -> None:
    stores.outbox.add(channel(1, lineages=("nightly*", "main")))
    stores.outbox.add(channel(2))
    put("fail", "a", lineage="nightly-tpu")
    put("fail", "b", lineage="release")
    got: dict[str, list[str]] = {}
    while (found := stores.outbox.claim(at=LAST)) is not None:
        got.setdefault(found[0].id, []).append(found[1].news.announcement.key)
        stores.outbox.settle(found[1].id, receipt("accepted"), at=NOW)
    assert got == {"c-1": ["a"], "c-2": ["a", "b"]}


def test_a_commits_status_is_told_for_every_commit(stores: Stores, put) -> None:
    stores.outbox.add(channel(1, ChannelKind.GITHUB, token_from="env:GITHUB_TOKEN"))
    other = "b" * 40
    assert put("fail", "a", git_sha=SHA, gate="release")
    assert not put("fail", "b", git_sha=SHA, gate="release")
    assert not put("fail", "c", git_sha=other, gate="release")
    assert put("pass", "d", git_sha=other, gate="release")
    assert put("pass", "e", lineage="manual", git_sha=other, gate="release")
    assert put("fail", "f", gate="release")
    assert put("pass", "g", git_sha="main", gate="release")
    assert not put("pass", "h", git_sha="c" * 40, repository="https://github.com/else/lib.git")
    assert not put("pass", "i", git_sha="c" * 40, repository="git@github.com:ACME/lib.git")
    assert sent(stores) == ["a", "c", "d", "i"]


def test_pending_becomes_error_once_nobody_tries_again(stores: Stores, put) -> None:
    stores.outbox.add(channel(1, ChannelKind.GITHUB, token_from="env:GITHUB_TOKEN"))
    assert put("inconclusive", "a", git_sha=SHA, retryable="true")
    assert not put("inconclusive", "b", git_sha=SHA)
    assert sent(stores) == ["a", "b"]
