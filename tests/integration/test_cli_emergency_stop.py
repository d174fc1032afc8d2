"""machines --terminate --all: with a controller, without one, and with clouds that fail."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from runners.fake import FakeCloud
from tests import cli_answers
from tests.unit.application.emergency_clouds import OURS, rent, stop_of
from tests.unit.cli import in_process
from tests.unit.cli.fake_controller import Answer, FakeController, Request
from tests.unit.cli.in_process import Cli

cli, controller = in_process.cli, in_process.controller  # the fixtures
ALL = "/api/v1/machines/terminate-all"
COMMAND = ("machines", "--terminate", "--all")


@pytest.fixture
def cloud(cli: Cli) -> FakeCloud:
    made = FakeCloud()
    cli.wiring.emergency_stop = lambda: stop_of(made)
    return made


def answers(controller: FakeController, *items: dict[str, Any]) -> None:
    """The controller ends these when it is ordered first, and finds nothing more."""
    left = [list(items)]

    def reply(_request: Request) -> Answer:
        found = left.pop() if left else []
        runs = ["01m8c8"] if found else []
        return Answer.of({"items": found, "unread": {}, "asked": ["aws"], "cancelled": runs}, 202)

    controller.answers["POST", ALL] = reply


def gone(cloud: FakeCloud) -> bool:
    for machine in cloud.live():
        cloud.inspect(machine.id)
    return not cloud.live()


def test_all_ends_without_a_controller_and_says_that_runs_are_not_cancelled(
    cli: Cli, cloud: FakeCloud
) -> None:
    rent(cloud, "mine", **OURS)
    assert cli(*COMMAND, "-y") == 0
    assert gone(cloud)
    assert "fake machine fake-mine: ended" in cli.err
    assert "No controller answered, so no run is cancelled" in cli.err
    assert "Ended: 1 billed thing. Asked: fake." in cli.err


def test_a_controller_cancels_its_runs_first_and_ends_with_its_own_credentials(
    cli: Cli, cloud: FakeCloud, controller: FakeController
) -> None:
    theirs = {
        "provider": "aws", "id": "us-east-1/i-1", "kind": "machine", "state": "ready", "run": "r",
        "failure": "",
    }  # fmt: skip
    answers(controller, theirs)
    rent(cloud, "mine", **OURS)
    assert cli(*COMMAND, "-y", "--json") == 0
    cli_answers.check("seatrial machines --terminate --all", cli.out)
    told = json.loads(cli.out)
    assert told["controller"] is True
    assert told["ended"] == ["aws/us-east-1/i-1", "fake/fake-mine"]
    assert told["cancelled"] == ["01m8c8"]
    assert [one.path for one in controller.requests if one.method == "POST"] == [
        ALL
    ] * 3  # the first finds one


def test_a_launch_under_way_is_found_by_the_next_look(cli: Cli, cloud: FakeCloud) -> None:
    class Late(FakeCloud):
        looks = 0

        def inventory(self):
            self.looks += 1
            if self.looks == 3:
                rent(self, "late", **OURS)
            return super().inventory()

    late = Late()
    cli.wiring.emergency_stop = lambda: stop_of(late)
    assert cli(*COMMAND, "-y") == 0
    assert "fake machine fake-late: ended" in cli.err
    assert gone(late)


def test_nothing_is_ended_without_being_asked(cli: Cli, cloud: FakeCloud) -> None:
    rent(cloud, "mine", **OURS)
    assert cli(*COMMAND) == 2
    assert "Nothing was ended." in cli.err
    assert len(cloud.live()) == 1


def test_what_is_not_ended_may_still_be_billed(cli: Cli, cloud: FakeCloud) -> None:
    rent(cloud, "mine", **OURS)
    cloud.fail_verb("terminate", times=1000)
    assert cli(*COMMAND, "-y") == 5
    assert "fake fake-mine may still be billed:" in cli.err


def test_an_order_that_is_taken_at_last_is_no_failure(cli: Cli, cloud: FakeCloud) -> None:
    rent(cloud, "mine", **OURS)
    cloud.fail_verb("terminate", times=1)
    assert cli(*COMMAND, "-y") == 0
    assert gone(cloud)


def test_a_cloud_that_cannot_be_asked_is_no_empty_cloud(cli: Cli, cloud: FakeCloud) -> None:
    cloud.fail_verb("inventory", times=1000)
    assert cli(*COMMAND, "-y") == 5
    assert "fake could not be asked" in cli.err
    assert "Asked: no cloud." in cli.err


def test_without_credentials_nothing_is_claimed(cli: Cli) -> None:
    cli.wiring.emergency_stop = stop_of
    assert cli(*COMMAND, "-y") == 5
    assert "No cloud could be asked" in cli.err


def test_all_alone_is_refused(cli: Cli, cloud: FakeCloud) -> None:
    assert cli("machines", "--all") == 2
    assert "--all goes with --terminate" in cli.err


def test_a_controller_whose_credentials_are_the_only_ones_is_ordered_until_nothing_is_left(
    cli: Cli, controller: FakeController
) -> None:
    answers(controller)
    cli.wiring.emergency_stop = stop_of
    assert cli(*COMMAND, "-y") == 0
    assert [one.path for one in controller.requests if one.method == "POST"] == [ALL, ALL]


def test_a_cloud_that_is_silent_once_is_asked_again(cli: Cli, cloud: FakeCloud) -> None:
    rent(cloud, "mine", **OURS)
    cloud.fail_verb("inventory", times=2)  # the survey before the question, and the first round
    assert cli(*COMMAND, "-y") == 0
    assert gone(cloud)


def test_machines_that_come_back_are_told_from_machines_that_stay(cli: Cli) -> None:
    class Relaunched(FakeCloud):
        looks = 0

        def inventory(self):
            self.looks += 1
            rent(self, f"again-{self.looks}", **OURS)
            return super().inventory()

    relaunched = stop_of(Relaunched())
    cli.wiring.emergency_stop = lambda: relaunched
    assert cli(*COMMAND, "-y") == 5
    assert "launched again and again" in cli.err
    assert "may still be billed" not in cli.err


def test_runs_that_are_not_cancelled_are_no_success(
    cli: Cli, cloud: FakeCloud, controller: FakeController
) -> None:
    said = {"items": [], "unread": {}, "asked": ["aws"], "not_cancelled": "the disk is full"}
    controller.answers["POST", ALL] = Answer.of(said, 202)
    assert cli(*COMMAND, "-y") == 5
    assert "Runs go on, and may launch machines again: the disk is full" in cli.err


def test_a_controller_that_refuses_is_no_success(
    cli: Cli, cloud: FakeCloud, controller: FakeController
) -> None:
    rent(cloud, "mine", **OURS)
    controller.answers["POST", ALL] = Answer.problem(403, "this needs the scope admin")
    assert cli(*COMMAND, "-y") == 5
    assert gone(cloud)
    assert "the controller refused" in cli.err


def test_a_controller_that_is_slow_is_not_said_to_be_absent(
    cli: Cli, cloud: FakeCloud, controller: FakeController, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.cli.session.URGENT_S", 0.05)
    held = threading.Event()

    def late(_request: Request) -> Answer:
        held.wait(120)
        return Answer.of({"items": [], "unread": {}, "asked": []}, 202)

    controller.answers["POST", ALL] = late
    monkeypatch.setattr("orchestrator.cli.commands.emergency_stop.ROUNDS", 2)
    assert cli(*COMMAND, "-y") == 5
    held.set()
    assert "the controller did not answer within" in cli.err
    assert "No controller answered" not in cli.err
