"""From another program's file to pages: ten thousand tests, and logs that memory has no room for.

Ten thousand tests, one in twenty failed in twenty ways, are taken in as a text log, JUnit XML and
reportlog, gathered by signature, rendered as every report and exported in every format: by the
operations themselves, and as a person does it, through the command line and a controller. Then a
process of its own takes in a log of a million lines. Each step's seconds are set against a named
baseline of the same run. Run it as `python -m benchmarks.foreign_results`; with `--gigabyte` also
a log of 1 GB, for which a disk needs 5 GB.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from xml.etree.ElementTree import parse

from benchmarks.timing import median_of
from orchestrator.adapters.files.home_folder import prepare_home
from orchestrator.application.context import Context
from orchestrator.application.describe_run import describe_run, evidence_of
from orchestrator.application.failure_groups import review_run
from orchestrator.application.ingest_artifacts import IngestOrder, ingest_artifacts
from orchestrator.bootstrap.controller_wiring import build
from orchestrator.config import Settings
from orchestrator.domain.run_record import Evidence
from tests.e2e.home import Home, a_home
from tests.many_tests import KINDS, PRINTED, Many, write_junit, write_reportlog, write_text
from tests.postgres import PostgresMissingError, start_postgres

MANY = Many()
LONG = Many(tests=200_000, fails_each=400)
PRINTED_LINES = 4
BULKY_LINES = 20
BULKY = "{line} of {number}: " + "0123456789abcdef " * 16
FLOOR_S = 20.0
"""Limit for each step with ten thousand tests, in seconds."""
GOAL_S = 5.0
FLOOR_MIB = 400
"""Maximum growth of a process's memory while it ingests a long log, in MiB."""
GOAL_MIB = 200
ROUNDS = 3


@dataclass
class Steps:
    """Seconds of each step, and of its baseline."""

    seconds: dict[str, float] = field(default_factory=dict)
    baselines: dict[str, tuple[str, float]] = field(default_factory=dict)

    def time(self, name: str, work: Callable[[], object], rounds: int = ROUNDS) -> None:
        self.seconds[name] = median_of(work, rounds)

    def against(self, steps: Iterator[str], name: str, seconds: float) -> None:
        self.baselines |= dict.fromkeys(steps, (name, seconds))

    def show(self) -> None:
        for step, seconds in self.seconds.items():
            name, base = self.baselines[step]
            print(
                f"  {step:26} {seconds:6.2f} s, {seconds / base:7.1f} times {name} ({base:.3f} s)"
            )

    @property
    def slowest(self) -> tuple[str, float]:
        return max(self.seconds.items(), key=lambda one: one[1])


def read_lines(path: Path) -> None:
    with path.open() as file:
        for _ in file:
            pass


def read_xml(path: Path) -> None:
    parse(path)


def read_json(path: Path) -> None:
    with path.open() as file:
        for line in file:
            json.loads(line)


FORMATS = {
    "log.txt": (write_text, read_lines, "reading its lines"),
    "junit.xml": (write_junit, read_xml, "parsing it with xml.etree"),
    "reportlog.jsonl": (write_reportlog, read_json, "json.loads of its lines"),
}


@contextmanager
def opened(home: Path, url: str | None = None) -> Iterator[Context]:
    """Yield the context of a controller's operations, with a home of its own."""
    prepare_home(home)
    settings = Settings.model_validate({"home": home, "database_url": url})
    parts = build(settings, runs_cells=False)
    try:
        yield parts.context
    finally:
        parts.database.close()


def take_in(context: Context, path: Path, version: str) -> str:
    order = IngestOrder(
        body=path, name=path.name, platform="gcp-l4", subject=f"torchbridge@{version}"
    )
    return ingest_artifacts(context, order).run_id


def ten_thousand(folder: Path, url: str | None = None) -> Steps:
    """Ingest each format, group, render and export; return the times."""
    steps = Steps()
    with opened(folder / "home", url) as context:
        runs = [ingested(context, steps, folder, name) for name in FORMATS]
        now = context.clock.now()
        first = runs[0]
        steps.time("tell it with its clusters", lambda: describe_run(context.stores, first, at=now))
        steps.time("gather its failures", lambda: review_run(context, first))
        steps.time("read every test", lambda: evidence_of(context.stores, first, at=now))
        head, base = (evidence_of(context.stores, run, at=now) for run in runs[:2])
        assert head.record.counts.as_dict() == base.record.counts.as_dict()
        assert [group.count for group in head.record.failure_groups] == [
            MANY.failed // KINDS
        ] * KINDS
        told = set(steps.seconds) - set(steps.baselines)
        plain = median_of(lambda: written_plainly(head), ROUNDS)
        written(context, steps, replace(head, base=base))
    reads = "json.dumps of every test"
    steps.against(iter(told), reads, plain)
    steps.against(iter(set(steps.seconds) - set(steps.baselines)), reads, plain)
    return steps


def ingested(context: Context, steps: Steps, folder: Path, name: str) -> str:
    """Ingest one format several times, each time as another version; return the last run's id."""
    write, read, baseline = FORMATS[name]
    path = folder / name
    write(path, MANY)
    runs: list[str] = []
    step = f"ingest {name}"
    steps.time(step, lambda: runs.append(take_in(context, path, f"1.{len(runs)}")))
    steps.against(iter([step]), baseline, median_of(lambda: read(path), ROUNDS))
    return runs[-1]


def written_plainly(evidence: Evidence) -> None:
    for tests in evidence.tests.values():
        for test in tests:
            json.dumps(asdict(test))


def written(context: Context, steps: Steps, evidence: Evidence) -> None:
    """Render every report and export every format."""
    for kind in context.report_kinds():
        for form in ("md", "html", "json"):
            steps.time(
                f"render {kind} {form}",
                lambda kind=kind, form=form: context.render(kind, evidence, None, form),
            )
    for form in context.export_media():
        steps.time(f"export {form}", lambda form=form: list(context.export(form, evidence, None)))


def by_hand(folder: Path) -> Steps:
    """Perform the same steps through the command line and a controller."""
    steps = Steps()
    with a_home(folder / "cli") as home:
        home.seatrial("runs")
        start = median_of(lambda: home.seatrial("--version"), ROUNDS)
        listing = median_of(lambda: home.seatrial("runs"), ROUNDS)
        order = ("--platform", "gcp-l4", "--subject", "torchbridge@1.0")
        runs: list[str] = []
        for name in ("log.txt", "junit.xml"):
            words = ("ingest", str(folder / name), *order)
            steps.time(f"ingest {name}", lambda w=words: runs.append(done(home, *w)), 1)
        for words in commands(*runs):
            named = " ".join(word for word in words if word not in runs)
            steps.time(named, lambda w=words: home.seatrial(*w), 1)
        peak = peak_mib(home.controller_pid())
    steps.against(iter(steps.seconds), "`seatrial runs` of an empty home", listing)
    print(f"command line: {start:.2f} s for --version; the controller's peak is {peak} MiB:")
    return steps


def commands(head: str, base: str) -> Iterator[tuple[str, ...]]:
    yield ("show", head)
    yield ("show", head, "--json")
    for kind in ("summary", "platform", "backend", "results", "cost"):
        for form in ("md", "html", "json"):
            yield ("report", head, "--kind", kind, "--format", form)
    yield ("compare", base, head)
    for form in ("junit", "ctrf", "csv", "json", "intoto"):
        yield ("export", head, "--format", form)


def done(home: Home, *words: str) -> str:
    return home.seatrial(*words).strip()


def peak_mib(pid: int) -> int:
    """Return the peak memory of a process in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) // 1024
    raise AssertionError(f"/proc/{pid}/status names no peak")


def in_child(path: Path, home: Path) -> dict[str, float]:
    """Ingest a log in a child process; return the figures that it prints."""
    words = [sys.executable, "-m", "benchmarks.foreign_results", "--child", str(path), str(home)]
    said: dict[str, float] = json.loads(subprocess.run(words, check=True, stdout=-1).stdout)
    return said


def child(path: Path, home: Path) -> None:
    """Ingest a log; print the seconds, the growth of memory, and the number of tests."""
    with opened(home) as context:
        before = peak_mib(os.getpid())  # what the resource module tells is its parent's
        begun = time.perf_counter()
        run = take_in(context, path, "1.0")
        seconds = time.perf_counter() - begun
        grown = peak_mib(os.getpid()) - before
        counts = describe_run(context.stores, run, at=context.clock.now()).counts
    assert (home / "runs" / run / "report" / "SUMMARY.md").exists(), "its report was not written"
    said = {"seconds": seconds, "grown_mib": grown, "start_mib": before}
    print(json.dumps({**said, "tests": counts.collected, "failed": counts.failed}))


def long_log(folder: Path, *, printed: int, of: str) -> float:
    """Ingest a long log; return the growth of memory in MiB."""
    path = folder / "long.txt"
    lines = write_text(path, LONG, printed=printed, of=of)
    size = path.stat().st_size / 2**20
    plain = median_of(lambda: read_lines(path), 1)
    said = in_child(path, folder / f"home-{printed}")
    path.unlink()
    assert (said["tests"], said["failed"]) == (LONG.tests, LONG.failed)
    seconds, grown = said["seconds"], said["grown_mib"]
    print(
        f"{lines:,} lines ({size:,.0f} MiB), {LONG.tests:,} tests: {seconds:.1f} s,"
        f" {seconds / plain:.0f} times reading its lines ({plain:.2f} s); memory grew by"
        f" {grown:.0f} MiB, {grown / size:.2f} of the log, from {said['start_mib']:.0f} MiB"
    )
    return grown


def with_postgres(folder: Path) -> Steps | None:
    try:
        server = start_postgres(fast=False)
    except PostgresMissingError as missing:
        print(f"postgres: not measured: {missing}")
        return None
    try:
        return ten_thousand(folder / "postgres", server.create("foreign"))
    finally:
        server.stop()


def measured(folder: Path, *, gigabyte: bool) -> int:
    """Run all measurements; return 1 if a floor is missed."""
    (folder / "postgres").mkdir()
    tried = {"sqlite": ten_thousand(folder)}
    print(f"sqlite: {MANY.tests:,} tests, {MANY.failed} failed in {KINDS} ways:")
    tried["sqlite"].show()
    postgres = with_postgres(folder)
    if postgres is not None:
        print("postgres:")
        postgres.show()
        tried["postgres"] = postgres
    tried["command line"] = by_hand(folder)
    tried["command line"].show()
    grown = [long_log(folder, printed=PRINTED_LINES, of=PRINTED)]
    if gigabyte:
        grown.append(long_log(folder, printed=BULKY_LINES, of=BULKY))
    missed = max(grown) > FLOOR_MIB
    for name, steps in tried.items():
        step, seconds = steps.slowest
        missed = missed or seconds > FLOOR_S
        print(f"{name}: the slowest step is {step}: {seconds:.2f} s")
    print(
        f"goal {GOAL_S} s a step, floor {FLOOR_S} s; memory grew by {max(grown):.0f} MiB,", end=""
    )
    print(f" goal {GOAL_MIB}, floor {FLOOR_MIB}")
    return 1 if missed else 0


def main() -> int:
    """Measure; return 1 if a step or the memory misses its floor."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabyte", action="store_true", help="take in a log of 1 GB as well")
    parser.add_argument("--child", nargs=2, type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(*args.child)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        return measured(Path(folder), gigabyte=args.gigabyte)


if __name__ == "__main__":
    sys.exit(main())
