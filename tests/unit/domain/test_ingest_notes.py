"""What a person writes beside artifacts, and what is known of platforms by name."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from orchestrator.adapters.files.documents import FileDocuments
from orchestrator.domain.accelerators import INSTANCE_DEVICES, architecture
from orchestrator.domain.annotation import moment
from orchestrator.domain.assembly.jobs import artifact_id, module_id, title_of
from orchestrator.domain.catalogue import PLATFORMS
from orchestrator.domain.document_problems import InvalidDocumentError
from orchestrator.domain.ingested import StatedMachine
from orchestrator.domain.matrix import Platform
from orchestrator.domain.outcome import Outcome

HEAD = "apiVersion: seatrial/v1\nkind: Ingest\n"
WHOLE = (
    HEAD
    + """\
platform:
  id: gcp-l4
  provider: gcp
  instance_type: g2-standard-4
  accelerator: {vendor: nvidia, name: L4}
subject: {name: torchbridge, version: "0.4.6"}
date: 2026-01-19
environment: image
suites: [{id: moe, title: MoE Tests, match: "tests/test_moe.py"}]
jobs: {moe-demo: {title: MoE Demo, kind: demo, file: moe_demo.txt}}
machine:
  place: us-west1-a
  instance_type: g2-standard-4
  market: on-demand
  seconds: 300
  usd_per_hour: "0.7068"
  priced: "seed 004, 2026-01-13"
annotations:
  - {kind: fix, title: A fix, text: "It was *so*.", files: [a.py], at: 2026-01-18}
  - {kind: narrative, text: All of it., whole_run: true, author: R. Eader}
"""
)


def read(text: str):
    return FileDocuments().read_ingest_notes(text, "ingest.yaml")


def refused(text: str) -> str:
    with pytest.raises(InvalidDocumentError) as caught:
        read(text)
    return str(caught.value)


def test_all_of_it_is_read():
    notes = read(WHOLE)
    assert isinstance(notes.platform, Platform)
    assert notes.dated_at() == datetime(2026, 1, 19, tzinfo=UTC)
    assert notes.machine is not None
    assert notes.machine == StatedMachine(
        place="us-west1-a",
        instance_type="g2-standard-4",
        market="on-demand",
        seconds=Decimal(300),
        usd_per_hour=Decimal("0.7068"),
        priced="seed 004, 2026-01-13",
    )
    first, second = notes.stated(cell="gcp-l4", at=notes.dated_at())
    assert (first.cell, first.at) == ("gcp-l4", datetime(2026, 1, 18, tzinfo=UTC))
    assert (second.cell, second.at, second.author) == ("", notes.dated_at(), "R. Eader")


def test_nothing_has_to_be_said():
    notes = read(HEAD)
    assert notes.dated_at() is None
    assert notes.cause() is None


def test_a_platform_without_results():
    said = HEAD + "outcome: {word: not_available, reason: not_offered, detail: nobody sells it}\n"
    assert read(said).cause() == (Outcome.NOT_AVAILABLE, "not_offered", "nobody sells it")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("platfrom: x", "did you mean 'platform'"),
        ("date: yesterday", "'yesterday' is no date"),
        ("date: 1969-12-31", "is no date"),
        ("date: 2026-01-19T12:00:00", "is no date"),
        ("jobs: {a b: {title: x}}", "'a b' must be letters"),
        ("annotations: [{kind: fix}]", "needs a title or a text"),
        ("annotations: [{kind: praise, text: x}]", "'praise' is unknown"),
        ("outcome: {word: passed, reason: x}", "'passed' is unknown"),
        ('machine: {usd_per_hour: "-1"}', "must not be negative"),
        ('machine: {seconds: 0, usd_per_hour: "1"}', "must be more than 0"),
        ("subject: {name: x, version: 1.10}", 'write it in quotes: "1.10"'),
    ],
)
def test_what_makes_no_sense_is_said_at_its_place(line, said):
    message = refused(f"{HEAD}{line}\n")
    assert said in message
    assert "ingest.yaml: line 3" in message


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-01-19", datetime(2026, 1, 19, tzinfo=UTC)),
        ("2026-01-19T12:00:00Z", datetime(2026, 1, 19, 12, tzinfo=UTC)),
        ("2026-01-19T12:00:00+02:00", datetime(2026, 1, 19, 10, tzinfo=UTC)),
        ("2026-13-19", None),
        ("", None),
    ],
)
def test_moments(text, at):
    assert moment(text) == at


@pytest.mark.parametrize(
    ("name", "job", "title"),
    [
        ("tests/test_fp8_native.py", "fp8-native", "FP8 Native"),
        ("tests/test_moe.py", "moe", "MoE"),
        ("tests/test_nvidia_backend.py", "nvidia-backend", "NVIDIA Backend"),
        ("tests/flex_attention_test.py", "flex-attention", "FlexAttention"),
        ("README.md", "readme", "Readme"),
        ("tests/test_.py", "test", "Test"),
        ("", "unnamed", "Unnamed"),
    ],
)
def test_suites_are_named_after_modules(name, job, title):
    assert module_id(name) == job
    assert title_of(job) == title


@pytest.mark.parametrize(
    ("name", "job"),
    [
        ("moe_demo.txt", "moe-demo"),
        ("sub/Moe Demo.log.gz", "moe-demo"),
        ("…", "unnamed"),
        ("x" * 100, "x" * 64),
    ],
)
def test_jobs_are_named_after_files(name, job):
    assert artifact_id(name) == job


def test_the_catalogue_agrees_with_itself():
    assert PLATFORMS["gcp-l4"].architecture == "Ada Lovelace"
    assert PLATFORMS["aws-a10g"].architecture == architecture("8.6") == "Ampere"
    assert PLATFORMS["aws-mi300x"].architecture == ""
    for name, row in PLATFORMS.items():
        assert row.platform.id == name
        kind = row.platform.instance_type
        if isinstance(kind, str):
            assert INSTANCE_DEVICES[kind].name == row.device
            assert INSTANCE_DEVICES[kind].compute_capability == row.compute_capability
