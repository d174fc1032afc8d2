"""Skip what is proven: an unchanged nightly costs nothing and says why; any change runs again."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from types import SimpleNamespace

import pytest

from orchestrator.application.describe_run import evidence_of
from orchestrator.domain.manifest import Job
from orchestrator.domain.matrix import (
    Baseline,
)
from orchestrator.domain.outcome import Counts, Outcome
from tests.integration import nightly_story as scenery
from tests.integration.memory_engine import SimulatedCrashError
from tests.integration.nightly_story import (
    HOURS,
    Nights,
    degraded_one,
    failing_one,
    reused,
    script,
    whys,
    with_driver,
)

nights = scenery.nights  # the fixture


def test_an_unchanged_nightly_costs_nothing_and_says_why(nights):
    first = nights.night()
    assert first.cost_usd > 0
    assert whys(first) == {"it has not passed here before"}
    nights.world.clock.step(5 * HOURS)
    second = nights.night()
    assert (second.outcome, second.reason) == (Outcome.PASSED, "reused")
    assert second.detail == "proven by run run-1: nothing its 2 jobs depend on has changed"
    assert whys(second) == {"proven by run run-1 5 h ago: nothing it depends on has changed"}
    assert (second.cost_usd, second.leases, second.attempts) == (Decimal(0), (), ())
    assert [(t.from_state, t.to_state, t.reason) for t in second.transitions] == [
        ("queued", "done", "reused")
    ]
    assert nights.world.cloud.made == 1
    assert second.counts == first.counts == Counts(passed=2)
    for job in second.jobs:
        assert (job.outcome, job.reason, job.reused_from) == (Outcome.PASSED, "reused", "run-1")
        assert job.at is not None
        assert job.at <= first.entered_at
    assert second.attestation == first.attestation
    assert second.probed == first.probed
    assert second.simulated
    assert nights.world.published[-1].record.run.outcome is Outcome.PASSED


def test_reused_results_are_read_and_never_copied(nights):
    nights.night()
    nights.night()
    stores = nights.world.database.stores
    both = [evidence_of(stores, f"run-{n}", at=nights.world.clock.now()) for n in (1, 2)]
    assert both[0].tests == both[1].tests
    assert stores.results.tests("run-2-0") == []
    [test] = [t for t in stores.tests.of_run("run-1") if t.job == "one"]
    assert stores.tests.of_run("run-2") == []
    assert [go.run for go in stores.tests.history([test.id], limit=9)] == ["run-1"]


def test_age_is_counted_from_the_first_evidence_and_never_from_a_reuse(nights):
    nights.night()
    for _ in range(3):
        nights.world.clock.step(12 * HOURS - 60)
        assert nights.night().jobs[0].reused_from == "run-1"
    nights.world.clock.step(4 * HOURS)
    late = nights.night()
    assert whys(late) == {"evidence is 39 h old, 36 h allowed"}
    assert (late.reason, nights.world.cloud.made) == ("", 2)
    assert nights.night().jobs[0].reused_from == "run-5"


def test_without_being_asked_nothing_is_reused(nights):
    nights.night()
    nights.max_age_s = None
    assert whys(nights.night()) == {""}
    assert nights.world.cloud.made == 2


def payload(nights: Nights) -> None:
    nights.payload = b"another"


def subject(nights: Nights) -> None:
    nights.version = "2"


def package(nights: Nights) -> None:
    nights.wheels.packages = {"numpy": "2.4.6"}


def wheels(nights: Nights) -> None:
    nights.wheels.content = b"other wheels"


def unresolved(nights: Nights) -> None:
    nights.wheels.broken = "the index is away"
    nights.world.on_tick.append(lambda world: setattr(nights.wheels, "broken", ""))


def image(nights: Nights) -> None:
    nights.world.cloud.images["north"] = "fake-image-2"


def no_image(nights: Nights) -> None:
    nights.world.cloud.images["north"] = ""


def unavailable(nights: Nights) -> None:
    nights.world.cloud.fail_verb("image", times=1)


def platform(nights: Nights) -> None:
    nights.platform = replace(nights.platform, options={"disk": "big"})


def environment(nights: Nights) -> None:
    nights.environments = ("other",)


def long_ago(nights: Nights) -> None:
    nights.world.clock.step(40 * HOURS)


CHANGES = [
    (payload, "payload changed: 239f59ed55e7 → ae448ac86c4e"),
    (subject, "subject changed: lib 1 → lib 2"),
    (package, "package numpy 2.4.5 → 2.4.6"),
    (wheels, "other files of the same versions are installed: "),
    (unresolved, "packages unknown: the index is away"),
    (image, "image changed: fake-image-1 → fake-image-2"),
    (unavailable, "image unknown: the fake cloud's image is scripted to fail"),
    (platform, 'platform changed: options none → {"disk": "big"}'),
    (environment, "it has not passed here before"),
    (long_ago, "evidence is 40 h old, 36 h allowed"),
    (no_image, "image unknown"),
]


def test_any_change_is_run_again_and_says_which(nights):
    """Night after night; each is compared with the one before."""
    nights.night()
    for made, (change, why) in enumerate(CHANGES, start=2):
        change(nights)
        again = nights.night()
        told = (change.__name__, whys(again))
        assert all(one.startswith(why) for one in whys(again)), told
        assert (again.outcome, again.reason, reused(again)) == (Outcome.PASSED, "", []), told
        assert (nights.world.cloud.made, len(again.leases)) == (made, 1), told


def test_what_a_provider_cannot_say_of_its_image_is_run(nights):
    nights.night()
    cloud = nights.world.world.provider("fake")
    verbs = ("places", "launch", "inspect", "terminate", "inventory")
    mute = SimpleNamespace(**{verb: getattr(cloud, verb) for verb in verbs})
    nights.world.world = replace(nights.world.world, provider=lambda name: mute)
    assert whys(nights.night()) == {"image unknown: fake cannot say which one it would boot"}


def test_a_place_that_is_offered_no_more_proves_as_long_as_another_boots_the_same(nights):
    nights.night()
    nights.platform = replace(nights.platform, locations=("south", "west"))
    nights.world.cloud.images["south"] = "fake-image-2"
    assert reused(nights.night()) == ["one", "two"]


def test_an_image_brings_its_driver(nights):
    nights.world.on_tick.append(with_driver("570.1"))
    nights.night()
    assert reused(nights.night()) == ["one", "two"]
    nights.world.cloud.images["north"] = "fake-image-2"
    nights.world.on_tick[:] = [with_driver("580.2")]
    nights.night()
    stores = nights.world.database.stores
    [made] = stores.reusable_results.preparations("run-3-0")
    assert (made.ingredients.driver, made.ingredients.devices) == ("580.2", "1 x nvidia L4")


def test_a_device_that_does_not_tell_its_driver_proves_nothing(nights):
    nights.world.on_tick.append(with_driver(""))
    nights.night()
    again = nights.night()
    assert whys(again) == {"driver unknown of run run-1"}


def test_only_the_others_run_when_some_are_proven(nights):
    nights.world.on_tick.append(script(failing_one))
    assert nights.night().outcome is Outcome.FAILED
    nights.world.on_tick.clear()
    again = nights.night()
    assert reused(again) == ["two"]
    assert again.jobs[0].reuse == "it has not passed here before"
    assert (again.outcome, again.reason, again.counts) == (Outcome.PASSED, "", Counts(passed=2))
    assert again.cost_usd > 0
    tests = nights.world.database.stores.results.tests("run-2-0")
    assert [test.job for test in tests] == ["one"]
    third = nights.night()
    assert {job.id: job.reused_from for job in third.jobs} == {"one": "run-2", "two": "run-1"}
    assert (third.cost_usd, third.leases) == (Decimal(0), ())


def test_a_degraded_pass_is_no_proof(nights):
    nights.world.on_tick.append(script(degraded_one))
    first = nights.night()
    assert (first.outcome, first.jobs[0].degraded) == (Outcome.PASSED, "no kernel")
    assert reused(nights.night()) == ["two"]


def test_secrets_and_pairs_are_always_run(nights):
    nights.world.world = replace(nights.world.world, secret=lambda name: "s3cret")
    nights.jobs = (
        replace(nights.jobs[0], secrets=("HF_TOKEN",)),
        Job(id="speed", kind="benchmark", command=("run",), turns=True),
        nights.jobs[1],
    )
    nights.baseline = Baseline(package="lib==0")
    nights.night()
    again = nights.night()
    assert reused(again) == ["two"]
    assert [job.reuse for job in again.jobs[:2]] == [
        "it is handed secrets (HF_TOKEN), and what they open may have changed",
        "it is measured against the baseline, on one machine and in turns",
    ]


@pytest.mark.parametrize("step", range(2))
def test_a_crash_at_any_step_of_a_reused_cell_changes_nothing(nights, step):
    """After a step that was not written down: a crash before it finds less."""
    nights.night()
    cell = nights.begin()
    nights.world.engine.crash_after = step
    with pytest.raises(SimulatedCrashError):
        nights.world.engine.run(cell)
    nights.world.engine.run(cell)
    told = nights.told()
    assert (told.reason, told.cost_usd, told.leases) == ("reused", Decimal(0), ())
    assert nights.world.cloud.made == 1


def test_a_cancelled_run_is_not_reused(nights):
    nights.night()
    cell = nights.begin()
    nights.world.database.stores.runs.request_cancel(nights.run, at=nights.world.clock.now())
    nights.world.engine.run(cell)
    assert nights.told().outcome is Outcome.CANCELLED


def test_cuda_that_no_gpu_would_use_is_never_sent_to_a_rented_machine(nights):
    nights.wheels.packages = {"nvidia-cublas-cu12": "12.9"}
    cell = nights.night()
    assert (cell.outcome, cell.reason) == (Outcome.ERRORED, "environment")
    assert "nvidia-cublas-cu12" in cell.detail


def test_what_was_sent_to_a_machine_is_remembered_for_the_next_plan(nights):
    stores = nights.world.database.stores
    nights.night()
    nights.wheels.content = b"larger wheels"
    nights.payload = b"another payload"
    nights.night()
    found = stores.reusable_results.newest_preparations(10)
    assert [one.shipped_bytes for one in found] == [len(b"larger wheels"), len(b"wheels")]
