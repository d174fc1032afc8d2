"""A benchmark as a resident arm measures only in its turns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from torchbridge.bench import Arm, take_turns, turns

CPU = torch.device("cpu")
PAYLOAD = Path(__file__).parents[1]


@pytest.fixture
def told(tmp_path, monkeypatch):
    """Create a pipe for the turns; yield a function that writes text to it from a thread."""
    pipe = tmp_path / "turns"
    os.mkfifo(pipe)
    monkeypatch.setenv("SEATRIAL_TURNS", str(pipe))
    speakers = []

    def tell(text: str) -> None:
        speakers.append(threading.Thread(target=pipe.write_text, args=(text,)))
        speakers[-1].start()

    yield tell
    for speaker in speakers:
        speaker.join(10)
        assert not speaker.is_alive()


def test_alone_there_is_one_turn(evidence, monkeypatch):
    monkeypatch.delenv("SEATRIAL_TURNS", raising=False)
    assert list(turns()) == [0]
    assert evidence() == []


@pytest.mark.parametrize("last", ["end\n9\n", ""])
def test_turns_are_taken_until_the_end(evidence, told, last):
    told(f"0\n3\n4\n{last}")
    assert list(turns()) == [0, 1, 2]
    assert evidence() == [{"turn": "ready"}, {"turn": 0}, {"turn": 3}, {"turn": 4}]


def test_each_turn_has_its_samples_before_it_is_over(evidence, told):
    calls = []
    told("0\n1\nend\n")
    arm = Arm("work", lambda: calls.append(bool(evidence())), setup=dict)  # a sample is one call
    taken = take_turns({"loop": arm}, CPU, samples=4, budget_s=0.01, dtype="float32")["loop"]
    lines = evidence()
    assert [next(iter(line)) for line in lines] == ["turn", "metric", "turn", "metric", "turn"]
    metrics = [line for line in lines if "metric" in line]
    assert [one["samples"] for one in metrics] == [taken[:4], taken[4:]]
    assert metrics[0]["metric"] == "loop/latency"
    clock = {"clock": "synchronised clock", "device": "cpu", "dtype": "float32"}
    assert metrics[0]["params"] == metrics[1]["params"] == clock
    assert calls[:3] == [False] * 3  # the warm-up precedes the first event
    assert calls[-8:] == [True] * 8


def test_the_resident_benchmark_takes_turns(tmp_path):
    """The resident benchmark takes turns as a process of its own, as Seatrial starts it."""
    pipe, events = tmp_path / "turns", tmp_path / "events"
    os.mkfifo(pipe)
    variables = {"SEATRIAL_TURNS": str(pipe), "SEATRIAL_EVENTS": str(events)}
    child = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.resident", "--samples", "3"],
        cwd=PAYLOAD,
        env=os.environ | variables,
        stdout=subprocess.DEVNULL,
    )
    told = threading.Thread(target=pipe.write_text, args=("0\n5\nend\n",), daemon=True)
    told.start()  # writing blocks until the pipe is read
    try:
        assert child.wait(timeout=120) == 0
    finally:
        child.kill()
    lines = [json.loads(line) for line in events.read_text().splitlines()]
    assert [one["turn"] for one in lines if "turn" in one] == ["ready", 0, 5]
    metrics = {one["metric"] for one in lines if "metric" in one}
    assert metrics == {"resident/product/latency", "resident/perceptron/latency"}
    assert all(len(one["samples"]) == 3 for one in lines if "metric" in one)
