"""Evidence arrives complete: whole lines, all samples, from several processes at once."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from torchbridge import evidence

WRITER = """
import sys
from torchbridge import evidence
for number in range(200):
    evidence.metric("m", [number] * 50, unit="ms", direction="lower", writer=sys.argv[1])
"""


@pytest.fixture
def told(tmp_path, monkeypatch):
    """Return a function that reads the evidence written so far, one dictionary per line."""
    path = tmp_path / "events.jsonl"
    monkeypatch.setenv("SEATRIAL_EVENTS", str(path))

    def lines() -> list[dict]:
        return [json.loads(line) for line in path.read_text("utf-8").splitlines()]

    return lines


class TestCheck:
    @pytest.mark.parametrize(
        ("outcome", "word", "good"),
        [
            (True, "passed", True),
            (False, "failed", False),
            ("passed", "passed", True),
            ("failed", "failed", False),
            ("skipped", "skipped", True),
        ],
    )
    def test_outcome(self, told, outcome, word, good):
        assert evidence.check("name", outcome) is good
        assert told() == [{"check": "name", "outcome": word}]

    def test_text_stays_one_line(self, told):
        reason = 'two\nlines, "quotes", größer ≤ 1\u2028\x00'
        evidence.check("text", "skipped", reason=reason)
        assert told() == [{"check": "text", "outcome": "skipped", "reason": reason}]

    def test_infinite_error_does_not_stop_the_job(self, told):
        assert not evidence.check("error", False, value=math.inf)
        assert told()[0]["value"] == math.inf

    def test_what_json_cannot_hold_is_refused_whole(self, told):
        evidence.check("first", True)
        evidence.degraded("no fused kernel")
        with pytest.raises(TypeError, match="Tensor"):
            evidence.check("error", True, value=torch.tensor(1.0))
        assert [next(iter(line.values())) for line in told()] == ["first", "no fused kernel"]


class TestMetric:
    def test_all_samples_in_order(self, told):
        samples = tuple(1.0 / (i + 3) for i in range(57))
        evidence.metric("latency", samples, unit="ms", direction="lower", hidden=512)
        line = told()[0]
        assert tuple(line["samples"]) == samples  # bit for bit
        assert line["params"] == {"hidden": 512}
        assert (line["unit"], line["direction"]) == ("ms", "lower")

    @pytest.mark.parametrize("value", [[1, 64], None, torch.float32, {"a": 1}])
    def test_a_param_that_nobody_can_compare_by_is_refused(self, told, value):
        with pytest.raises(TypeError, match="latency: param shape must be a number or a text"):
            evidence.metric("latency", [1.0], unit="ms", direction="lower", shape=value)


class TestFile:
    @pytest.mark.parametrize("value", [None, ""])
    def test_silent_without_a_file(self, tmp_path, monkeypatch, value):
        monkeypatch.chdir(tmp_path)
        if value is None:
            monkeypatch.delenv("SEATRIAL_EVENTS", raising=False)
        else:
            monkeypatch.setenv("SEATRIAL_EVENTS", value)
        assert evidence.check("quiet", True)
        assert not evidence.check("quiet", False)
        assert list(tmp_path.iterdir()) == []

    def test_a_file_that_cannot_be_written_is_an_error(self, tmp_path, monkeypatch):
        monkeypatch.setenv("SEATRIAL_EVENTS", str(tmp_path / "nowhere" / "events.jsonl"))
        with pytest.raises(FileNotFoundError):
            evidence.check("lost", True)

    def test_writers_do_not_cut_each_other_short(self, tmp_path):
        path = tmp_path / "events.jsonl"
        environment = os.environ | {"SEATRIAL_EVENTS": str(path)}
        root = Path(evidence.__file__).parents[1]
        writers = [
            subprocess.Popen([sys.executable, "-c", WRITER, name], cwd=root, env=environment)
            for name in "abc"
        ]
        assert [writer.wait(timeout=60) for writer in writers] == [0, 0, 0]
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for name in "abc":
            mine = [one for one in lines if one["params"]["writer"] == name]
            assert [one["samples"] for one in mine] == [[n] * 50 for n in range(200)]
