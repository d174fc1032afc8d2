"""A benchmark in turns with its baseline: two arms, and all that can go wrong with either."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runners.agent.event_lines import read
from tests.integration.agent_machine import (
    PAYLOADS,
    Evidence,
    Machine,
    command,
    laid_out,
    machine_at,
)

FEW = {"min_pairs": 4, "max_pairs": 4, "precision": 0.001}
SAY = (
    "import seatrial_events as s; say = lambda v: s.metric('m', [v], unit='ms', direction='lower')"
)


@pytest.fixture
def payloads(tmp_path: Path) -> Callable[[str, str], tuple[Path, Path]]:
    """Make a payload of a program for each arm."""

    def make(subject: str, baseline: str) -> tuple[Path, Path]:
        for name, program in (("new", subject), ("old", baseline)):
            (tmp_path / name).mkdir()
            (tmp_path / name / "bench.py").write_text(f"{SAY}\n{program}\n")
        return tmp_path / "new", tmp_path / "old"

    return make


def bench(program: str = "bench.py", **job: Any) -> dict[str, Any]:
    told = {"id": "bench", "kind": "benchmark", "turns": True, "paired": FEW, **job}
    return command("{python}", program, **told)


def plan(machine: Machine, lean: str, old: Path, **job: Any) -> dict[str, Any]:
    baseline = {"payload": machine.unpack(old), "environment": {"name": "image"}}
    return {"python": lean, "jobs": [bench(**job)], "baseline": baseline}


def arms(evidence: Evidence, job: str = "bench") -> list[tuple[str, int, float]]:
    told = [one for one in evidence.of("metric", job) if "arm" in one]
    return [(one["arm"], one["turn"], one["samples"][0]) for one in told]


def plain(evidence: Evidence, job: str = "bench") -> list[list[float]]:
    return [one["samples"] for one in evidence.of("metric", job) if "arm" not in one]


def warnings(evidence: Evidence, job: str) -> list[str]:
    return [one["message"] for one in evidence.of("log", job) if one["level"] == "warning"]


LOOP = "for n in s.turns(): say({value} + n)"
AFRESH = """
import os, pathlib
told = [os.environ["TRITON_CACHE_DIR"], os.environ["TMPDIR"], os.getcwd()]
pathlib.Path({ledger!r}).open("a").write(" ".join(told) + "\\n")
say(1)
"""
ANEW = """
import os, pathlib, time
pathlib.Path({ledger!r}).open("a").write(f"{{os.getpid()}}\\n")
for n in s.turns(): say(1); time.sleep(0.5)
"""
STUCK = "import time\nfor n in s.turns():\n    say(1)\n    time.sleep(60 * {})"
ALTER = "open('data.txt', 'w').write('8')"
READ = "for n in s.turns(): say(int(open('data.txt').read()))"
TROUBLE = {
    "crashes": (
        "for n in s.turns():\n    assert n < 2, 'too many turns'\n    say(2)",
        "its arm ended after 2 turns: exit code 1; it said last:",
    ),
    "hangs": (
        "import time\nfor n in s.turns():\n    say(2)\n    time.sleep(60 if n == 1 else 0)",
        "its arm ended after 1 turn: nothing heard for 9 s",
    ),
    "takes-no-turn": ("say(2)", "its arm ended after 0 turns: exit code 0"),
}


@pytest.fixture(scope="module")
def ledgers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where processes of both arms write down what they are."""
    return tmp_path_factory.mktemp("ledgers")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, lean: str, ledgers: Path) -> Evidence:
    """One attempt with a benchmark for each way in which two arms may go."""
    afresh, anew = (str(ledgers / name) for name in ("afresh", "anew"))
    cases: dict[str, tuple[str, str, dict[str, Any]]] = {
        "resident": (LOOP.format(value=100), LOOP.format(value=200), {}),
        "afresh": (AFRESH.format(ledger=afresh),) * 2 + ({"turns": False},),
        "anew": (ANEW.format(ledger=anew),) * 2
        + ({"paired": {**FEW, "max_pairs": 8, "precision": 0.0}},),
        "alters": (LOOP.format(value=1), f"{LOOP.format(value=1)}\n{ALTER}", {}),
        "restored": (LOOP.format(value=1), READ, {}),
        "hung": (STUCK.format("n"), LOOP.format(value=1), {"silence_s": 9}),
        "stuck": (STUCK.format(1), STUCK.format(1), {"timeout_s": 2}),
        **{
            name: (LOOP.format(value=1), program, {"silence_s": 9})
            for name, (program, _) in TROUBLE.items()
        },
    }
    new, old = (
        laid_out(
            tmp_path_factory.mktemp(arm),
            {f"{name}.py": f"{SAY}\n{case[at]}\n" for name, case in cases.items()}
            | {"data.txt": "7"},
        )
        for at, arm in enumerate(("new", "old"))
    )
    with machine_at(tmp_path_factory.mktemp("machine") / "base") as machine:
        told = plan(machine, lean, old)
        told["jobs"] = [bench(f"{name}.py", id=name, **job) for name, (_, _, job) in cases.items()]
        return machine.run(new, **told, limits={"deadline_s": 280}, timeout_s=280)


def test_resident_arms_take_turns(ran: Evidence) -> None:
    taken = arms(ran, "resident")
    assert [(arm, turn) for arm, turn, _ in taken] == [
        ("subject", 0), ("baseline", 1), ("baseline", 2), ("subject", 3),
        ("subject", 4), ("baseline", 5), ("baseline", 6), ("subject", 7),
    ]  # fmt: skip
    # The first turn of every process is for warming up.
    assert all((value > 200) == (arm == "baseline") and value % 100 for arm, _, value in taken)
    assert plain(ran, "resident") == [[value for arm, _, value in taken if arm == "subject"]]
    turn = next(one for one in ran.of("metric", "resident") if "arm" in one)
    assert turn["readings"]["load_1m"] >= 0
    finished = ran.finished("resident")
    assert (finished["exit_code"], finished["cause"]) == (0, None)
    assert warnings(ran, "resident") == []
    # Arms that are started anew say the same again, and then the ratio is known for sure.
    assert b"4 pairs of turns with the baseline: " in ran.log


def test_processes_that_know_no_turns_run_afresh(ran: Evidence, ledgers: Path) -> None:
    assert [arm for arm, _, _ in arms(ran, "afresh")][:4] == [
        "subject", "baseline", "baseline", "subject",
    ]  # fmt: skip
    lines = [line.split() for line in (ledgers / "afresh").read_text().splitlines()]
    assert len(lines) == 10  # one each for warming up
    for each in zip(*lines, strict=True):
        assert len(set(each)) == 2


def test_resident_arms_are_started_anew(ran: Evidence, ledgers: Path) -> None:
    launches = len(set((ledgers / "anew").read_text().split())) // 2
    assert launches >= 2
    told = [one for one in ran.of("metric", "anew") if "arm" in one]
    assert {one["readings"]["launch"] for one in told} == set(range(1, launches + 1))
    assert warnings(ran, "anew") == []


def test_what_a_baseline_altered_is_as_shipped_for_the_next_job(ran: Evidence) -> None:
    assert {value for arm, _, value in arms(ran, "restored") if arm == "baseline"} == {7}


@pytest.mark.parametrize("name", TROUBLE)
def test_trouble_with_the_baseline_costs_the_pairs_only(name: str, ran: Evidence) -> None:
    assert arms(ran, name) == []
    [samples] = plain(ran, name)
    assert samples
    finished = ran.finished(name)
    assert (finished["exit_code"], finished["cause"]) == (0, None)
    [warning] = warnings(ran, name)
    assert warning.removeprefix("no pairs with the baseline: ").startswith(TROUBLE[name][1])


@pytest.mark.parametrize(("name", "cause"), [("hung", "hung"), ("stuck", "timeout")])
def test_trouble_with_the_subject_is_the_jobs(name: str, cause: str, ran: Evidence) -> None:
    finished = ran.finished(name)
    assert (finished["exit_code"], finished["cause"]) == (None, cause)
    assert arms(ran, name) == []


def test_an_unprepared_baseline_fails_nothing(machine: Machine, lean: str, payloads: Any) -> None:
    new, old = payloads(LOOP.format(value=1), "")
    told = plan(machine, lean, old)
    wanted = {"name": "image", "requirements": ["no-such-distribution==1"]}
    told["baseline"]["environment"] = wanted
    evidence = machine.run(new, **told)
    assert plain(evidence) == [[1]]
    assert arms(evidence) == []
    assert evidence.end["outcome"] == "completed"
    [warning] = evidence.messages("warning")
    assert warning.startswith("benchmarks run alone, because the baseline cannot be prepared: pack")


def test_a_refused_baseline_is_told_once(machine: Machine, lean: str, payloads: Any) -> None:
    new, old = payloads(LOOP.format(value=1), "")
    told = plan(machine, lean, old)
    told["baseline"] = {"refused": "there is no widget 0.9"}
    told["jobs"].append({**told["jobs"][0], "id": "other"})
    evidence = machine.run(new, **told)
    assert evidence.messages("warning") == [
        "benchmarks run alone, because the baseline cannot be prepared: there is no widget 0.9"
    ]
    assert evidence.finished("other")["exit_code"] == 0


ENDLESS = {"min_pairs": 1000, "max_pairs": 1000, "precision": 0.0}
SLOW = "import time\nfor n in s.turns(): say(1); time.sleep(0.05)"


def test_a_request_to_stop_ends_both_arms(machine: Machine, lean: str, payloads: Any) -> None:
    new, old = payloads(SLOW, SLOW)
    folder = machine.prepare(new, **plan(machine, lean, old, paired=ENDLESS))
    machine.start(folder)
    machine.follow(folder, until='"started"')
    time.sleep(0.5)
    machine.verb("stop", "--attempt", folder, "--reason", "its run was cancelled")
    evidence = machine.wait(folder)
    assert evidence.finished("bench")["cause"] == "stopped"
    assert evidence.end["outcome"] == "stopped"


def test_an_agent_that_dies_is_followed_by_one_that_begins_anew(
    machine: Machine, lean: str, payloads: Any
) -> None:
    new, old = payloads(SLOW, SLOW)
    folder = machine.prepare(new, **plan(machine, lean, old, paired={**FEW, "max_pairs": 30}))
    machine.start(folder)
    machine.follow(folder, until='"started"')
    time.sleep(0.5)
    os.kill(int((folder / "agent.pid").read_text()), signal.SIGKILL)
    machine.start(folder)
    evidence = machine.wait(folder)
    assert evidence.end["outcome"] == "completed"
    assert [turn for _, turn, _ in arms(evidence)] == list(range(len(arms(evidence))))
    assert read(folder / "events.jsonl").finished == {"bench"}


def test_arms_of_the_payload_that_the_other_tests_use(machine: Machine, lean: str) -> None:
    slower = machine.base / "slower"
    shutil.copytree(PAYLOADS / "paired", slower)
    (slower / "slower").write_text("1.0")
    wanted = {"min_pairs": 10, "max_pairs": 10, "precision": 0.5}
    told = plan(machine, lean, PAYLOADS / "paired", paired=wanted)
    evidence = machine.run(slower, **told)
    medians = [sorted(one["samples"])[4] for one in evidence.of("metric", "bench") if "arm" in one]
    assert sum(medians[0::4]) > sum(medians[1::4])
