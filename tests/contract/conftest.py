"""Machines for the contract suites: this computer, and OpenSSH hosts of the tests' own making."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.domain.machine import LocalEndpoint, Shell, SshEndpoint
from runners.fake import FakeComputer, FakeWorkspace
from runners.shell import open_shell
from runners.workspace import AGENT_FOLDER, Archive, ShellWorkspace, pack
from tests.ssh_hosts import SshHost

SSH = pytest.param("ssh", marks=pytest.mark.needs_sshd)
SERVING = ("__init__.py", "layout.py", "serve.py")
STUB = Path(__file__).with_name("stub_agent.py")


@pytest.fixture(scope="session")
def ssh_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHost]:
    """One host that stays as it is; tests that stop or freeze a host make their own."""
    with SshHost(tmp_path_factory.mktemp("ssh"), name="shared") as host:
        yield host


@pytest.fixture
def new_host(tmp_path: Path) -> Iterator[Callable[..., SshHost]]:
    """Makes and starts hosts that end with the test."""
    made: list[SshHost] = []

    def make(name: str = "own", **options: tuple[str, ...]) -> SshHost:
        made.append(SshHost(tmp_path, name=name, **options))
        return made[-1].start()

    yield make
    for host in made:
        host.stop()


@pytest.fixture(params=["local", SSH])
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shell]:
    """Each kind of shell, to a machine that works."""
    endpoint: LocalEndpoint | SshEndpoint = LocalEndpoint("here")
    keys_dir = tmp_path
    if request.param == "ssh":
        host: SshHost = request.getfixturevalue("ssh_host")
        endpoint, keys_dir = host.endpoint(), host.keys_dir
    opened = open_shell(endpoint, keys_dir=keys_dir)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def stub() -> Archive:
    """The agent of these tests, packed as the real one is; it answers as that one does."""
    real = [(f"seatrial_agent/{name}", (AGENT_FOLDER / name).read_bytes()) for name in SERVING]
    return pack([*real, ("seatrial_agent/__main__.py", STUB.read_bytes())])


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tmp_path / "work folder's"


@pytest.fixture
def real(shell: Shell, base: Path, stub: Archive) -> Iterator[ShellWorkspace]:
    """A workspace over each kind of shell."""
    workspace = ShellWorkspace(shell, base=str(base), candidates=[sys.executable], agent=stub)
    yield workspace
    workspace.disconnect()


@pytest.fixture(params=["local", SSH, "fake"])
def workspace(
    request: pytest.FixtureRequest, tmp_path: Path, base: Path, stub: Archive
) -> Iterator[ShellWorkspace | FakeWorkspace]:
    """Each kind of workspace, the one in memory too."""
    if request.param == "fake":
        yield FakeWorkspace(FakeComputer())
        return
    if request.param == "local":
        shell = open_shell(LocalEndpoint("here"), keys_dir=tmp_path)
    else:
        host: SshHost = request.getfixturevalue("ssh_host")
        shell = open_shell(host.endpoint(), keys_dir=host.keys_dir)
    workspace = ShellWorkspace(shell, base=str(base), candidates=[sys.executable], agent=stub)
    yield workspace
    workspace.disconnect()
