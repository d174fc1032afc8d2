"""Thousands of tests at once: told alike by every format, in memory that a long log does not fill.

`python -m benchmarks.foreign_results` measures the same with more of them, and how long it takes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from pathlib import Path

from orchestrator.adapters.files.ingest_upload import FileUploadUnpacker
from orchestrator.adapters.result_parsers.registry import FileDialects
from orchestrator.application.describe_run import describe_run, evidence_of
from orchestrator.application.ingest_artifacts import IngestOrder, foreign_files, ingest_artifacts
from orchestrator.domain.assembly.merge import assemble
from orchestrator.domain.ingest_notes import IngestNotes
from orchestrator.domain.ingested import SourceState
from tests.many_tests import KINDS, PRINTED, Many, write_junit, write_reportlog, write_text

MIB = 2**20
ROOT = Path(__file__).parents[2]


def ingest(api, path):
    order = IngestOrder(body=path, name=path.name, platform="gcp-l4", subject="torchbridge@0.4.6")
    return ingest_artifacts(api.context, order).run_id


def told(api, run):
    """What a run's tests came to, without how they were written down."""
    evidence = evidence_of(api.context.stores, run, at=api.clock.now())
    tests = sorted((t.job, t.nodeid, t.outcome) for t in evidence.tests["gcp-l4"])
    failure_groups = sorted((c.signature.message, c.count) for c in evidence.record.failure_groups)
    return tests, failure_groups


def test_every_format_tells_the_same_tests_and_ways_to_fail(api, tmp_path):
    many = Many(tests=1_000, fails_each=10)
    runs = []
    for name, write in (
        ("a.txt", write_text),
        ("b.xml", write_junit),
        ("c.jsonl", write_reportlog),
    ):
        write(tmp_path / name, many)
        runs.append(ingest(api, tmp_path / name))
        [cell] = describe_run(api.context.stores, runs[-1], at=api.clock.now()).cells
        [source] = cell.ingested.sources
        assert (source.state, source.named, source.remarks) == (SourceState.READ, 1_000, ())
        counts = {word: n for word, n in cell.counts.as_dict().items() if n}
        assert counts == many.counts()
    tests, failure_groups = told(api, runs[0])
    assert [count for _, count in failure_groups] == [many.failed // KINDS] * KINDS
    assert told(api, runs[1]) == told(api, runs[2]) == (tests, failure_groups)


def test_a_log_of_a_hundred_thousand_lines_is_taken_in_with_little_memory(tmp_path):
    many = Many(tests=20_000, fails_each=400)
    assert write_text(tmp_path / "log.txt", many, printed=4) > 100_000
    words = [
        "-m",
        "benchmarks.foreign_results",
        "--child",
        str(tmp_path / "log.txt"),
        str(tmp_path / "h"),
    ]
    said = json.loads(subprocess.check_output([sys.executable, *words], cwd=ROOT, timeout=500))
    assert (said["tests"], said["failed"]) == (many.tests, many.failed)
    assert 0 < said["grown_mib"] < 128


def peak_of_reading(path):
    with FileUploadUnpacker().open(path, path.name) as upload:
        tracemalloc.start()
        try:
            files = foreign_files(FileDialects(), upload.files)
            found = assemble(files, upload.record_store(), notes=IngestNotes(), version="1", at=0.0)
            lines = sum(1 for _ in found.lines)
            return lines, tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


def test_memory_is_for_tests_and_not_for_what_they_print(tmp_path):
    many = Many(tests=400, fails_each=100)
    write_text(tmp_path / "little.txt", many, printed=2)
    write_text(tmp_path / "much.txt", many, printed=20, of=PRINTED * 3)
    lines, little = peak_of_reading(tmp_path / "little.txt")
    again, much = peak_of_reading(tmp_path / "much.txt")
    assert lines == again > many.tests
    size = (tmp_path / "much.txt").stat().st_size
    assert size > MIB
    assert much < little + size / 5


def test_an_export_is_sent_in_large_pieces(api, tmp_path):
    many = Many(tests=1_000, fails_each=10)
    write_text(tmp_path / "log.txt", many)
    run = ingest(api, tmp_path / "log.txt")
    sent: list[int] = []

    async def counted(scope, receive, send):
        async def counting(message):
            sent.append(len(message.get("body", b"")))
            await send(message)

        await api.app(scope, receive, counting)

    client = api.speak(counted)
    for form in ("junit", "ctrf", "csv", "json"):
        sent.clear()
        answer = client.get(f"/api/v1/runs/{run}/export/{form}")
        assert answer.status_code == 200
        assert sum(sent) == len(answer.content) > 100_000
        assert len(sent) < 4 + len(answer.content) / 30_000
