"""The registry of dialects.

Other distributions add dialects through entry points of the group ``seatrial.dialects``:
``name = "package.module:Class"``, a class whose constructor takes no arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.metadata import entry_points
from typing import cast

from orchestrator.adapters.result_parsers.ctrf import Ctrf
from orchestrator.adapters.result_parsers.demo_output import DemoHeadings, DemoMarks
from orchestrator.adapters.result_parsers.device_results import DeviceResults
from orchestrator.adapters.result_parsers.failed_step import FailedStep
from orchestrator.adapters.result_parsers.json_report import PytestJsonReport
from orchestrator.adapters.result_parsers.junit import JUnitXml
from orchestrator.adapters.result_parsers.metric_dialects import MetricJson, MetricLines
from orchestrator.adapters.result_parsers.nvidia_smi import NvidiaSmi
from orchestrator.adapters.result_parsers.pytest_benchmark import PytestBenchmark
from orchestrator.adapters.result_parsers.pytest_text import PytestText
from orchestrator.adapters.result_parsers.reportlog import Reportlog
from orchestrator.adapters.result_parsers.transcription import Transcription
from orchestrator.application.ports.result_parsers import Artifact, Dialect

GROUP = "seatrial.dialects"
BUILT_IN: tuple[Callable[[], Dialect], ...] = (
    Ctrf,
    DemoHeadings,
    DemoMarks,
    DeviceResults,
    FailedStep,
    JUnitXml,
    MetricJson,
    MetricLines,
    NvidiaSmi,
    PytestBenchmark,
    PytestJsonReport,
    PytestText,
    Reportlog,
    Transcription,
)


class DialectError(RuntimeError):
    """A dialect of another distribution cannot be used; the text names it and the reason."""


class FileDialects:
    """Implements `Dialects`: built-in parsers, and parsers of installed packages."""

    def __init__(self, dialects: Iterable[Dialect] | None = None) -> None:
        """Register only `dialects`, or all available ones. Raises DialectError."""
        chosen = tuple(dialects) if dialects is not None else (*_built_in(), *_installed())
        self._dialects = tuple(sorted(chosen, key=lambda dialect: dialect.name))

    @property
    def names(self) -> tuple[str, ...]:
        """Every dialect's name, sorted."""
        return tuple(dialect.name for dialect in self._dialects)

    def best(self, artifact: Artifact) -> tuple[Dialect, float] | None:
        """Return the dialect with the highest confidence for the artifact, and the confidence.

        Of equal dialects the first by name is returned; None if no dialect fits.
        """
        surest: tuple[Dialect, float] | None = None
        for dialect in self._dialects:
            confidence = dialect.match(artifact)
            if confidence > (surest[1] if surest else 0.0):
                surest = dialect, confidence
        return surest


def _built_in() -> tuple[Dialect, ...]:
    return tuple(make() for make in BUILT_IN)


def _installed() -> tuple[Dialect, ...]:
    taken = {dialect.name for dialect in _built_in()}
    found: list[Dialect] = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            dialect = cast("Dialect", entry.load()())
        except Exception as error:  # a dialect of another distribution may raise anything
            raise DialectError(
                f"the dialect {entry.name} cannot be loaded from {entry.value}: {error}; "
                "repair or remove the distribution that registers it"
            ) from error
        if dialect.name in taken:
            raise DialectError(
                f"an installed distribution registers a dialect {dialect.name!r} in {GROUP}, a "
                f"name that is taken ({entry.value}); remove it or rename its dialect"
            )
        taken.add(dialect.name)
        found.append(dialect)
    return tuple(found)
