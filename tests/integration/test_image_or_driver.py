"""A driver that broke the tests, found where everything else was ruled out by the real flow."""

from __future__ import annotations

import pytest

from orchestrator.application.attribute_failures import attribute_run
from orchestrator.domain.matrix import Baseline
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.retests import SURE, RetestOptions
from orchestrator.domain.root_cause import Attribution
from tests.integration.retest_world import RetestWorld, subject_version

ONE = "one::one.py::test_one"


def machine(driver: str, **packages: str) -> dict[str, object]:
    return {
        "python": "3.11.2",
        "torch": "2.13.0",
        "cuda": "12.8",
        "machine": {"os": "Linux", "devices": [{"name": "L4", "driver": driver}]},
        "packages": {"torch": "2.13.0", **packages},
    }


@pytest.fixture
def here(tmp_path):
    world = RetestWorld(tmp_path, provider="local", baseline=Baseline(package="steps==0.9"))
    yield world
    world.close()


def finish(here: RetestWorld, run_id: str) -> Outcome | None:
    [cell] = here.launch(run_id)
    here.engine.run(cell)
    return here.record(run_id).cells[0].outcome


def a_red_run_after_a_green_one(here: RetestWorld, *, second: str = "failed") -> Attribution:
    """Green with the old driver, red with the new one, and the same on a second machine."""
    here.environment, here.word = machine("550.54"), lambda job, plan: "passed"
    assert finish(here, "run-1") is Outcome.PASSED
    here.environment = machine("570.86")
    here.word = lambda job, plan: "failed" if job == "one" else "passed"
    here.retests = RetestOptions(diagnose=True)
    assert finish(here, "run-2") is Outcome.FAILED
    here.word = lambda job, plan: second if job == "one" else "passed"
    here.retests = RetestOptions(reruns=SURE, tests=(ONE,))
    finish(here, "run-3")
    here.database.stores.retests.add_confirmation("run-2", "run-3")
    [found] = attribute_run(here.database.stores, "run-2")["cloudy"]
    return found


def test_what_fails_with_everything_changed_is_the_drivers(here):
    found = a_red_run_after_a_green_one(here)
    assert found.answer == "image_or_driver", found
    assert found.sentence == "Since the last green run run-1: device driver 550.54 -> 570.86."
    told = " ".join(found.evidence)
    assert "With the baseline steps 0.9 it failed 4 of 4 times." in told
    assert "On another machine of the platform" in told
    [shown] = here.record("run-2").diagnosed
    assert shown.answer == "image_or_driver"
    assert shown.tried == "failed 4 of 4 again; failed 4 of 4 with the baseline steps 0.9"


def test_it_is_the_machine_where_another_one_with_that_driver_passes(here):
    found = a_red_run_after_a_green_one(here, second="passed")
    assert found.answer == "machine", found


def test_nothing_is_said_while_no_second_machine_has_answered(here):
    here.environment, here.word = machine("550.54"), lambda job, plan: "passed"
    finish(here, "run-1")
    here.environment, here.word = machine("570.86"), lambda job, plan: "failed"
    here.retests = RetestOptions(diagnose=True)
    finish(here, "run-2")
    answers = {one.answer for one in attribute_run(here.database.stores, "run-2")["cloudy"]}
    assert answers == {"unknown"}


def test_a_package_that_differs_is_tried_before_the_driver_is_blamed(here):
    """With the packages of the last green run it fails as well: they are ruled out, too."""
    here.environment, here.word = machine("550.54", dep="1.0"), lambda job, plan: "passed"
    finish(here, "run-1")
    here.environment = machine("570.86", dep="2.0")
    here.word = lambda job, plan: "failed" if job == "one" else "passed"
    here.retests = RetestOptions(diagnose=True)
    finish(here, "run-2")
    here.retests = RetestOptions(reruns=SURE, tests=(ONE,))
    finish(here, "run-3")
    here.database.stores.retests.add_confirmation("run-2", "run-3")
    [found] = attribute_run(here.database.stores, "run-2")["cloudy"]
    assert found.answer == "image_or_driver", found
    assert "With the packages of the last green run run-1 it failed 4 of 4 times." in found.evidence


def test_the_baseline_that_passes_says_it_is_ours_whatever_the_driver(here):
    here.environment, here.word = machine("550.54"), lambda job, plan: "passed"
    finish(here, "run-1")
    here.environment = machine("570.86")
    here.word = lambda job, plan: (
        "failed" if job == "one" and subject_version(plan) != "0.9" else "passed"
    )
    here.retests = RetestOptions(diagnose=True)
    finish(here, "run-2")
    [found] = attribute_run(here.database.stores, "run-2")["cloudy"]
    assert found.answer == "subject"
    [shown] = here.record("run-2").diagnosed
    assert shown.tried == "failed 6 of 6 again; passed 4 of 4 with the baseline steps 0.9"
    assert shown.sentence.startswith("With the baseline steps 0.9 and nothing else changed")
