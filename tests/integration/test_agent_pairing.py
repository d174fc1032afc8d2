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
)

FEW = {"min_pairs": 4, "max_pairs": 4, "precision": 0.001}
SAY = (
    "import seatrial_events as s; say = lambda v: s.metric('m', [v], unit='ms', direction='lower')"
)


Pair = Callable[..., Evidence]


@pytest.fixture
def payloads(tmp_path: Path) -> Callable[[str, str], tuple[Path, Path]]:
    """Make a payload of a program for each arm."""

    def make(subject: str, baseline: str) -> tuple[Path, Path]:
        for name, program in (("new", subject), ("old", baseline)):
            (tmp_path / name).mkdir()
            (tmp_path / name / "bench.py").write_text(f"{SAY}\n{program}\n")
        return tmp_path / "new", tmp_path / "old"

    return make


@pytest.fixture
def pair(machine: Machine, lean: str, payloads: Any) -> Pair:
    def run(subject: str, baseline: str, **job: Any) -> Evidence:
        new, old = payloads(subject, baseline)
        return machine.run(new, **plan(machine, lean, old, **job))

    return run


def plan(machine: Machine, lean: str, old: Path, **job: Any) -> dict[str, Any]:
    told = {"id": "bench", "kind": "benchmark", "turns": True, "paired": FEW, **job}
    baseline = {"payload": machine.unpack(old), "environment": {"name": "image"}}
    jobs = [command("{python}", "bench.py", **told)]
    return {"python": lean, "jobs": jobs, "baseline": baseline}


def arms(evidence: Evidence) -> list[tuple[str, int, float]]:
    told = [one for one in evidence.of("metric", "bench") if "arm" in one]
    return [(one["arm"], one["turn"], one["samples"][0]) for one in told]


def plain(evidence: Evidence) -> list[list[float]]:
    return [one["samples"] for one in evidence.of("metric", "bench") if "arm" not in one]


LOOP = "for n in s.turns(): say({value} + n)"


def test_resident_arms_take_turns(pair: Pair) -> None:
    evidence = pair(LOOP.format(value=100), LOOP.format(value=200))
    taken = arms(evidence)
    assert [(arm, turn) for arm, turn, _ in taken] == [
        ("subject", 0), ("baseline", 1), ("baseline", 2), ("subject", 3),
        ("subject", 4), ("baseline", 5), ("baseline", 6), ("subject", 7),
    ]  # fmt: skip
    # The first turn of every process is for warming up.
    assert all((value > 200) == (arm == "baseline") and value % 100 for arm, _, value in taken)
    assert plain(evidence) == [[value for arm, _, value in taken if arm == "subject"]]
    turn = next(one for one in evidence.of("metric", "bench") if "arm" in one)
    assert turn["readings"]["load_1m"] >= 0
    finished = evidence.finished("bench")
    assert (finished["exit_code"], finished["cause"]) == (0, None)
    assert evidence.messages("warning") == []
    # Arms that are started anew say the same again, and then the ratio is known for sure.
    assert b"4 pairs of turns with the baseline: " in evidence.log


def test_processes_that_know_no_turns_run_afresh(pair: Pair, tmp_path: Path) -> None:
    program = (
        "import os, tempfile, pathlib; say({value}); "
        "pathlib.Path({ledger!r}).open('a').write("
        "f\"{{os.environ['TRITON_CACHE_DIR']}} {{os.environ['TMPDIR']}} {{os.getcwd()}}\\n\")"
    )
    ledger = str(tmp_path / "ledger")
    texts = [program.format(value=value, ledger=ledger) for value in (1, 2)]
    evidence = pair(*texts, turns=False)
    assert [arm for arm, _, _ in arms(evidence)][:4] == [
        "subject", "baseline", "baseline", "subject",
    ]  # fmt: skip
    lines = [line.split() for line in Path(ledger).read_text().splitlines()]
    assert len(lines) == 10  # one each for warming up
    for each in zip(*lines, strict=True):
        assert len(set(each)) == 2


def test_resident_arms_are_started_anew(pair: Pair, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    program = (
        "import os, pathlib, time\n"
        f"pathlib.Path({str(ledger)!r}).open('a').write(f'{{os.getpid()}}\\n')\n"
        "for n in s.turns(): say(1); time.sleep(0.2)"
    )
    evidence = pair(program, program, paired={**FEW, "max_pairs": 8, "precision": 0.0})
    launches = len(set(ledger.read_text().split())) // 2
    assert launches >= 2
    told = [one for one in evidence.of("metric", "bench") if "arm" in one]
    assert {one["readings"]["launch"] for one in told} == set(range(1, launches + 1))
    assert evidence.messages("warning") == []


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


TROUBLE = {
    "crashes": (
        "for n in s.turns():\n    assert n < 2, 'too many turns'\n    say(2)",
        "its arm ended after 2 turns: exit code 1; it said last:",
    ),
    "hangs": (
        "import time\nfor n in s.turns():\n    say(2)\n    time.sleep(60 if n == 1 else 0)",
        "its arm ended after 1 turns: nothing heard for 2 s",
    ),
    "never takes a turn": ("say(2)", "its arm ended after 0 turns: exit code 0"),
}


@pytest.mark.parametrize("name", TROUBLE)
def test_trouble_with_the_baseline_costs_the_pairs_only(name: str, pair: Pair) -> None:
    program, says = TROUBLE[name]
    evidence = pair(LOOP.format(value=1), program, silence_s=2)
    assert arms(evidence) == []
    [samples] = plain(evidence)
    assert samples
    finished = evidence.finished("bench")
    assert (finished["exit_code"], finished["cause"]) == (0, None)
    [warning] = evidence.messages("warning")
    assert warning.removeprefix("no pairs with the baseline: ").startswith(says)


def test_trouble_with_the_subject_is_the_jobs(pair: Pair) -> None:
    program = "import time\nfor n in s.turns():\n    say(1)\n    time.sleep(60 * n)"
    finished = (evidence := pair(program, LOOP.format(value=1), silence_s=2)).finished("bench")
    assert (finished["exit_code"], finished["cause"]) == (None, "hung")
    assert arms(evidence) == []


def test_the_jobs_own_time_out(pair: Pair) -> None:
    stuck = "import time\nfor n in s.turns():\n    say(1)\n    time.sleep(60)"
    evidence = pair(stuck, stuck, timeout_s=2)
    assert evidence.finished("bench")["cause"] == "timeout"
    assert arms(evidence) == []


ENDLESS = {"min_pairs": 1000, "max_pairs": 1000, "precision": 0.0}
SLOW = "import time\nfor n in s.turns(): say(1); time.sleep(0.05)"


def test_a_request_to_stop_ends_both_arms(machine: Machine, lean: str, payloads: Any) -> None:
    new, old = payloads(SLOW, SLOW)
    folder = machine.prepare(new, **plan(machine, lean, old, paired=ENDLESS))
    machine.start(folder)
    machine.follow(folder, until='"started"')
    time.sleep(0.5)
    machine.verb("stop", "--attempt", folder, "--reason", "cancelled by a person")
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
