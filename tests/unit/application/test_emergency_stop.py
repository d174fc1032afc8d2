"""The emergency stop: everything that is billed ends, and what is not known is said."""

from __future__ import annotations

import pytest

from orchestrator.application.emergency_stop import EmergencyStop
from orchestrator.domain.machine import (
    ConfigError,
    CredentialsError,
    MachineState,
    Provider,
    ProviderTraits,
)
from runners.fake import FakeCloud
from tests.unit.application.emergency_clouds import OURS, rent, stop_of


def test_everything_of_the_project_ends_whoever_launched_it() -> None:
    cloud = FakeCloud()
    mine = rent(cloud, "mine", **OURS)
    others = rent(cloud, "others", **OURS, **{"seatrial-controller": "another"})
    stranger = rent(cloud, "stranger", **{"seatrial-project": "shop"})
    untagged = rent(cloud, "untagged")
    stop = stop_of(cloud)
    assert {one.id for one in stop.take_inventory().items} == {mine, others}
    assert {one.id for one in cloud.live()} == {mine, others, stranger, untagged}  # only looked
    report = stop.end_all()
    assert [one.failure for one in report.items] == ["", ""]
    assert report.asked == ("fake",)
    assert {one.state for one in stop.take_inventory().items} == {MachineState.STOPPING}
    for name in (mine, others):
        cloud.inspect(name)
    assert {one.id for one in cloud.live()} == {stranger, untagged}


def test_an_order_that_is_not_taken_does_not_save_the_next_machine() -> None:
    cloud = FakeCloud()
    for name in ("one", "two", "three"):
        rent(cloud, name, **OURS)
    cloud.fail_verb("terminate", times=1)
    report = stop_of(cloud).end_all()
    assert sorted(bool(one.failure) for one in report.items) == [False, False, True]


def test_a_cloud_that_is_silent_is_named_and_the_others_are_asked() -> None:
    silent, other = FakeCloud(), FakeCloud()
    silent.fail_verb("inventory", times=1)
    mine = rent(other, "mine", **OURS)
    report = stop_of(silent, other).end_all()
    assert [one.id for one in report.items] == [mine]
    assert list(report.unread) == ["fake"]
    assert report.asked == ("fake", "fake1")


@pytest.mark.parametrize("error", [ConfigError("not installed"), CredentialsError("none here")])
def test_a_cloud_without_credentials_is_passed_over_unless_the_ledger_has_it(error) -> None:
    def load(_name: str) -> Provider:
        raise error

    traits = {"aws": ProviderTraits("aws", frozenset())}
    report = EmergencyStop(load, traits, "seatrial").end_all()
    assert (report.items, report.unread, report.asked) == ((), {}, ())
    report = EmergencyStop(load, traits, "seatrial", in_ledger=("aws",)).end_all()
    assert (report.unread, report.asked) == ({"aws": str(error)}, ("aws",))


def test_credentials_of_the_computer_itself_are_used() -> None:
    """An instance role is not configured anywhere, and works all the same."""
    cloud = FakeCloud()
    rent(cloud, "mine", **OURS)
    stop = stop_of(cloud, is_configured=False)
    assert [one.failure for one in stop.end_all().items] == [""]
    assert stop.end_all().asked == ("fake",)


def test_what_is_shared_and_free_is_left_to_the_janitor() -> None:
    cloud = FakeCloud()
    rent(cloud, "group", **OURS, **{"seatrial-shared": "yes"})
    assert stop_of(cloud).take_inventory().items == ()


def test_a_machine_that_was_only_requested_is_ended_too() -> None:
    cloud = FakeCloud()
    cloud.is_ordered_first = True
    rent(cloud, "mine", **OURS)
    assert [one.failure for one in stop_of(cloud).end_all().items] == [""]
