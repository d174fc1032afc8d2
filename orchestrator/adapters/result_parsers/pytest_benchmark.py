"""The format of ``pytest --benchmark-json``: every round of every benchmark, in seconds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final

from orchestrator.adapters.result_parsers.bounded_input import (
    LINE_LIMIT,
    as_count,
    as_line,
    as_list,
    as_map,
    as_number,
    as_seconds,
    as_text,
    head_text,
    parsed_time,
)
from orchestrator.adapters.result_parsers.json_stream import EACH, JsonReader, Path
from orchestrator.application.ports.result_parsers import Artifact
from orchestrator.domain.parsed_results import (
    ParsedEnd,
    ParsedEnvironment,
    ParsedItem,
    ParsedJob,
    ParsedMetric,
    ParsedProblem,
    ParsedVersion,
    Provenance,
)

MOST_SAMPLES: Final = 100_000
"""Maximum samples of a metric, as in the agent; of more samples, evenly spaced ones are kept."""
_MACHINE: Final[Path] = ("machine_info",)
_COMMIT: Final[Path] = ("commit_info",)
_BENCHMARKS: Final[Path] = ("benchmarks", EACH)
_WRITTEN: Final[Path] = ("datetime",)
_SHAPE = re.compile(r'^\{\s*"machine_info"\s*:\s*\{')
_SHAPE_LATER = re.compile(r'"(?:commit_info|benchmarks)"\s*:\s*[\[{]')
_VERSION = re.compile(r"v?\d+(\.\d+)+\S{0,40}")


class PytestBenchmark:
    """Parses ``pytest --benchmark-json`` (`Dialect`)."""

    name = "pytest-benchmark"
    version = 3
    provenance = Provenance.STRUCTURED

    def match(self, artifact: Artifact) -> float:
        """Return how likely it is the format, by its first bytes: 0 is no, 1 names its producer."""
        head = head_text(artifact)
        if not _SHAPE.match(head):
            return 0.0
        return 0.95 if _SHAPE_LATER.search(head) else 0.6

    def read(self, artifact: Artifact) -> Iterator[ParsedItem]:
        """Yield the parsed items of the artifact in their order, in bounded memory."""
        reader = JsonReader(artifact, {_MACHINE, _COMMIT, _BENCHMARKS, _WRITTEN})
        names = _Names()
        yield ParsedJob(kind="benchmark")
        for path, part in reader.parts():
            if path == _MACHINE:
                yield from _statements_of_machine(as_map(part))
            elif path == _COMMIT:
                yield from _statements_of_commit(as_map(part))
            elif path == _WRITTEN:
                yield from parsed_time(part)
            else:
                yield from _statements_of_benchmark(as_map(part), names)
        yield from reader.problems
        if not reader.is_torn:
            yield reader.ended(ParsedEnd())


class _Names:
    """Names a benchmark by its function, or by its full name if the short one is not unique."""

    def __init__(self) -> None:
        self._taken: dict[str, str] = {}

    def choose(self, short: str, full: str, params: Mapping[str, object]) -> str:
        key = json.dumps([short, params], sort_keys=True, default=str)
        return short if self._taken.setdefault(key, full) == full else full


def _statements_of_benchmark(
    benchmark: Mapping[str, object], names: _Names
) -> Iterator[ParsedItem]:
    label = as_text(benchmark.get("name"), LINE_LIMIT)
    full = as_text(benchmark.get("fullname"), LINE_LIMIT) or label
    if not label:
        yield ParsedProblem("error", "a benchmark without a name is left out")
        return
    params = _params(benchmark)
    short = label.split("[")[0] if as_map(benchmark.get("params")) else label
    stats = as_map(benchmark.get("stats"))
    samples, problems = _samples(full, stats)
    yield from problems
    if samples:
        name = names.choose(short or label, full, params)
        yield ParsedMetric(name, samples, "s", "lower", params)


def _params(benchmark: Mapping[str, object]) -> dict[str, object]:
    params: dict[str, object] = {}
    for key, value in list(as_map(benchmark.get("params")).items())[:50]:
        number = as_number(value)
        plain = value if isinstance(value, bool) else number if number is not None else None
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53:
            plain = value
        params[as_line(key)] = as_line(value) if plain is None else plain
    group = as_line(benchmark.get("group"))
    return {**params, "group": group} if group else params


def _samples(
    name: str, stats: Mapping[str, object]
) -> tuple[tuple[float, ...], list[ParsedProblem]]:
    """Return the rounds; of a file without rounds, the median with a problem about it."""
    raw = as_list(stats.get("data"))
    rounds = [number for each in raw if (number := as_seconds(each)) is not None]
    problems = []
    if len(rounds) < len(raw):
        lost = len(raw) - len(rounds)
        problems.append(ParsedProblem("warning", f"{name}: {lost} of its rounds are no durations"))
    if len(rounds) > MOST_SAMPLES:
        kept = [rounds[n * len(rounds) // MOST_SAMPLES] for n in range(MOST_SAMPLES)]
        words = f"{name}: {len(kept)} of its {len(rounds)} rounds are kept, evenly spaced"
        return tuple(kept), [*problems, ParsedProblem("warning", words)]
    if rounds:
        return tuple(rounds), problems
    median, number = as_seconds(stats.get("median")), as_count(stats.get("rounds"))
    if median is None:
        return (), [*problems, ParsedProblem("error", f"{name}: it holds no measurement")]
    of = f" of {number}" if number is not None else ""
    words = f"{name}: its rounds were not saved; one sample is kept, the median{of}"
    return (median,), [*problems, ParsedProblem("warning", words)]


def _statements_of_machine(machine: Mapping[str, object]) -> Iterator[ParsedItem]:
    known = {
        "hostname": as_line(machine.get("node")),
        "os": as_line(machine.get("system")),
        "kernel": as_line(machine.get("release")),
        "machine": as_line(machine.get("machine")),
        "cpu_model": as_line(as_map(machine.get("cpu")).get("brand_raw")),
    }
    facts: dict[str, object] = {}
    if python := as_line(machine.get("python_version")):
        facts["python"] = python
    if told := {key: word for key, word in known.items() if word}:
        facts["machine"] = told
    if facts:
        yield ParsedEnvironment(facts)


def _statements_of_commit(commit: Mapping[str, object]) -> Iterator[ParsedItem]:
    """Yield the version in a commit's information, and a warning if its work tree is dirty."""
    project = as_line(commit.get("project"))
    for key in ("version", "tag"):
        word = as_line(commit.get(key))
        if project and _VERSION.fullmatch(word):
            yield ParsedVersion(project, word.removeprefix("v"))
            return
    if commit.get("dirty") is True:
        yield ParsedProblem("warning", "it was measured on a work tree with uncommitted changes")
