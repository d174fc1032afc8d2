"""The command line run in this process, with the real readers and a cloud that costs money."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from orchestrator.adapters.clock import SystemClock, new_id
from orchestrator.adapters.files.documents import FileDocuments
from orchestrator.application.ports.archives import PackedPayload
from orchestrator.application.ports.wheels import SubjectWheel
from orchestrator.bootstrap.cli_wiring import CommandWiring
from orchestrator.cli.app import main
from orchestrator.cli.errors import RefusedError
from orchestrator.cli.wiring import DatabaseState
from orchestrator.domain.cloud_account import AccountSetup
from orchestrator.domain.commit import Commit
from orchestrator.domain.machine import ProviderTraits
from orchestrator.domain.matrix import Subject
from tests.unit.cli import runs
from tests.unit.cli.fake_controller import FakeController, serving

MATRIX = """\
apiVersion: seatrial/v1
kind: Matrix
metadata: {name: release}
subject: {name: torchbridge, version: "0.4.40"}
payload: {path: pay}
platforms:
  - {id: local-cpu, provider: local}
jobs:
  - {select: "*", on: all}
"""
PAYLOAD = """\
schema = 1
name = "pay"
version = "1"
[[job]]
id = "moe"
kind = "suite"
pytest = ["tests"]
"""
ID = runs.RUN_ID
SHOWN = f"/api/v1/runs/{ID}"


@dataclass
class Environment:
    home: Path
    project: str = "seatrial"
    url: str | None = None
    token: None = None
    ci: bool = False


class QuickClock(SystemClock):
    """The computer's clock, which is ahead by the time that was to be waited for."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def now(self) -> datetime:
        return super().now() + self.ahead

    def sleep(self, seconds: float) -> None:
        self.ahead += timedelta(seconds=seconds)


@dataclass
class TestWiring:
    """The real readers, and a cloud that costs money."""

    __test__ = False
    settings: Environment
    held_by: int | None = None
    is_serving: bool = True
    is_busy: bool = False
    """Whether the holder goes on when it is asked to end."""
    served: list[dict[str, object]] = field(default_factory=list)
    clock: QuickClock = field(default_factory=QuickClock)
    documents = FileDocuments()
    new_id = staticmethod(new_id)
    builtin_payload = Path(__file__).parents[3] / "payload"

    @property
    def traits(self) -> Mapping[str, ProviderTraits]:
        cloud = ProviderTraits("cloud", frozenset({"instance_type"}))
        return {**CommandWiring().traits, "cloud": cloud}

    def account_setup(self, cloud: str) -> AccountSetup:
        return CommandWiring().account_setup(cloud)

    def pack(
        self, source: Path, scratch: Path, *, manifest_from: Path | None = None
    ) -> PackedPayload:
        return CommandWiring().pack(source, scratch, manifest_from=manifest_from)

    def commit(self, source: Path | None) -> Commit:
        return CommandWiring().commit(source)

    def pack_artifacts(self, source: Path, scratch: Path) -> Path:
        return CommandWiring().pack_artifacts(source, scratch)

    def subject(self, subject: Subject, *, base: Path, scratch: Path) -> SubjectWheel | None:
        return CommandWiring().subject(subject, base=base, scratch=scratch)

    def control(self, **options: object) -> int:
        self.served.append(options)
        return 3

    is_embedded = True

    def stored_reads(self) -> None:
        """There is nothing in the home."""

    def holder(self) -> int | None:
        return self.held_by

    def is_served(self) -> bool:
        return self.held_by is not None and self.is_serving

    def end_when_idle(self, process: int) -> None:
        self.held_by = self.held_by if self.is_busy else None

    def database(self, *, upgrade: bool) -> DatabaseState:
        if self.held_by:
            raise RefusedError("process 7 holds it; stop it first")
        return DatabaseState("sqlite:///app.db", "2" if upgrade else "1", "2")


@dataclass
class Cli:
    """Runs commands in this process and keeps what they wrote."""

    wiring: TestWiring
    folder: Path
    capture: pytest.CaptureFixture[str]
    out: str = ""
    err: str = ""

    def __call__(self, *args: str) -> int:
        code = main(self.wiring, list(args))
        self.out, self.err = self.capture.readouterr()
        return code

    @property
    def matrix(self) -> Path:
        return self.folder / "release.yaml"


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    (tmp_path / "release.yaml").write_text(MATRIX)
    (tmp_path / "pay" / "tests").mkdir(parents=True)
    (tmp_path / "pay" / "payload.toml").write_text(PAYLOAD)
    (tmp_path / "pay" / "tests" / "test_a.py").write_text("def test_a():\n    pass\n")
    # Nobody's terminal: a run of the tests by hand must not ask the person.
    monkeypatch.delenv("COLUMNS", raising=False)  # the test runner's workers have one of their own
    monkeypatch.setattr("sys.stdin", io.StringIO())
    return Cli(TestWiring(Environment(tmp_path / "home")), tmp_path, capsys)


@pytest.fixture
def controller(cli: Cli) -> Iterator[FakeController]:
    with serving(cli.wiring.settings.home, FakeController()) as fake:
        yield fake


def report_of(cli: Cli) -> Path:
    path = cli.wiring.settings.home / "runs" / ID / "report" / "SUMMARY.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("# Report\n")
    return path
