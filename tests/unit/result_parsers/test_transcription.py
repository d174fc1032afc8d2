"""Figures that a person typed."""

from __future__ import annotations

import json

import pytest

from orchestrator.adapters.result_parsers.transcription import Transcription
from orchestrator.application.ports.result_parsers import UnreadableError
from orchestrator.domain.outcome import TestOutcome as Outcome
from orchestrator.domain.parsed_results import (
    ParsedCheck,
    ParsedEnd,
    ParsedEnvironment,
    ParsedFallback,
    ParsedJob,
    ParsedMetric,
    ParsedNotice,
    ParsedTest,
    ParsedUnnamedTests,
)
from tests.unit.result_parsers.foreign import FOREIGN, foreign, made

DIALECT = Transcription()
TEXT = (FOREIGN / "transcription.yaml").read_text("utf-8")
HEAD = 'apiVersion: seatrial/v1\nkind: Transcription\nof: "a report"\n'


def read(folder, text, name="transcription.yaml"):
    return list(DIALECT.read(made(folder, text, name)))


def test_the_environment_that_it_may_tell():
    device = {
        "vendor": "nvidia",
        "name": "NVIDIA A10G",
        "compute_capability": "8.6",
        "driver": "580.105.08",
        "memory_bytes": 23028 * 1024 * 1024,
    }
    facts = {"python": "3.10.12", "torch": "2.7.0+cu128", "cuda": "12.8"}
    facts["machine"] = {"os": "Ubuntu", "devices": [device]}
    first = next(DIALECT.read(foreign("transcription.yaml")))
    assert first == ParsedEnvironment(facts)


def test_the_jobs_that_it_may_tell():
    said = list(DIALECT.read(foreign("transcription.yaml")))[1:]
    path = "tests/test_nvidia_backend.py::"
    named = f"{path}TestNVIDIAErrorPaths::test_unsupported_compute_capability"
    params = {"hidden": 512, "mode": "fast", "compiled": True}
    assert said == [
        ParsedNotice("typed from v0.4.6 A10G report of 2026-01-19"),
        ParsedJob("fp8-training", "suite", "FP8 Training"),
        ParsedTest(named, Outcome.SKIPPED, None, "requires specific GPU"),
        ParsedTest(f"{path}test_b", Outcome.PASSED),
        ParsedUnnamedTests({"passed": 10, "failed": 10}),
        ParsedCheck("availability", "passed"),
        ParsedCheck("training", "failed", "12", "checks", "14", "two are missing"),
        ParsedMetric("latency", (4.35,), "ms", "lower", params),
        ParsedFallback("FlexAttention fell back"),
        ParsedEnd(duration_s=7.27),
        ParsedJob("moe-demo", "demo"),
        ParsedEnd(),
    ]


def test_json_is_as_good(tmp_path):
    document = {"apiVersion": "seatrial/v1", "kind": "Transcription", "of": "x", "jobs": []}
    artifact = made(tmp_path, json.dumps(document, indent="\t"), "x-transcription.json")
    assert DIALECT.match(artifact) == 1.0
    assert [type(each).__name__ for each in DIALECT.read(artifact)] == [
        "ParsedNotice",
        "ParsedProblem",
    ]


@pytest.mark.parametrize(
    ("text", "name", "confidence"),
    [
        (TEXT, "transcription.yaml", 1.0),
        (TEXT, "seeds/a10g-Transcription.yml", 1.0),
        (TEXT, "figures.yaml", 0.9),
        ("jobs: []\n", "transcription.yaml", 0.6),
        ("kind: Matrix\n", "matrix.yaml", 0.0),
    ],
)
def test_how_sure_it_is(tmp_path, text, name, confidence):
    assert DIALECT.match(made(tmp_path, text, name)) == confidence


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TEXT.replace("counts:", "count:"), "line 14, column 5: .*did you mean 'counts'"),
        (TEXT.replace("failed: 10", "faild: 10"), "did you mean 'failed'"),
        (TEXT.replace("failed: 10", "failed: -1"), "must not be negative"),
        (TEXT.replace('"12"', "12"), "write it in quotes"),
        (TEXT.replace("[4.35]", "[]"), "must not be empty"),
        (TEXT.replace("[4.35]", "[.inf]"), "samples"),
        (TEXT.replace("[4.35]", "[.nan]"), "samples"),
        (TEXT.replace("512", "[512]"), "text, a number, true or false"),
        (TEXT.replace("7.27", "-1"), "must be a duration"),
        (TEXT.replace("direction: lower", "direction: sideways"), "is unknown"),
        (TEXT.replace("moe-demo", "fp8-training"), "there is a job 'fp8-training' already"),
        (TEXT + "jobs: []\n", "occurs twice"),
        (TEXT.replace("seatrial/v1", "seatrial/v9"), "apiVersion"),
        (TEXT[:-9], "line 23, column 7: .*not YAML"),
        (HEAD, "jobs: is missing"),
        (HEAD + "jobs: !!python/object/apply:os.system [ls]\n", "tags"),
        (HEAD + "jobs: " + "[" * 60, "nested deeper"),
        ("", "empty"),
        ("[", "not YAML"),
    ],
)
def test_what_is_refused(tmp_path, text, words):
    with pytest.raises(UnreadableError, match=words):
        read(tmp_path, text)


def test_an_alias_bomb_is_refused(tmp_path):
    levels = "".join(
        f"  - &l{n} [{', '.join([f'*l{n - 1}'] * 10) if n else '1'}]\n" for n in range(9)
    )
    with pytest.raises(UnreadableError, match="more than 50000 values"):
        read(tmp_path, f"{HEAD}jobs:\n{levels}")


def test_size_and_encoding_are_bounded(tmp_path):
    with pytest.raises(UnreadableError, match="larger than"):
        read(tmp_path, HEAD + "#" * 1024 * 1024)
    with pytest.raises(UnreadableError, match="no text in UTF-8"):
        read(tmp_path, HEAD.encode() + b"jobs: [\xff]")
    said = list(DIALECT.read(made(tmp_path, TEXT.encode("utf-16"), "transcription.yaml")))
    assert len(said) == 13
