"""Where a controller answers: sockets that can be had, and sentences where they cannot."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.adapters.files.home_folder import holder
from orchestrator.bootstrap.http_server import home_socket, port_sockets
from orchestrator.cli.errors import RefusedError
from tests.e2e.home import a_home, serving
from tests.ssh_hosts import free_port

ROOT = Path(__file__).parents[2]


@pytest.fixture
def taken() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


def test_the_homes_socket_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "controller.sock"
    path.touch()
    (bound,) = home_socket(path)
    with bound:
        mode = path.stat().st_mode
        assert stat.S_ISSOCK(mode)
        assert stat.S_IMODE(mode) == 0o600


def test_a_home_may_lie_deep(tmp_path: Path) -> None:
    folder = tmp_path / ("d" * 120)
    folder.mkdir()
    (bound,) = home_socket(folder / "controller.sock")
    with bound:
        assert (folder / "controller.sock").is_socket()


def test_a_home_without_room_for_a_socket_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="No such file or directory; set SEATRIAL_HOME"):
        home_socket(tmp_path / "gone" / "controller.sock")


def test_a_port_in_use_is_a_sentence(taken: socket.socket) -> None:
    port = taken.getsockname()[1]
    with taken, pytest.raises(RefusedError, match=f"port {port} of 127.0.0.1 is in use"):
        port_sockets("127.0.0.1", port)


def test_an_address_of_somebody_else_is_a_sentence() -> None:
    with pytest.raises(RefusedError, match="cannot be listened on: Cannot assign"):
        port_sockets("192.0.2.1", 8470)


def served(home: Path, port: int) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SEATRIAL_")}
    return subprocess.run(
        [sys.executable, "-m", "orchestrator", "serve", "--port", str(port)],
        env=kept | {"PYTHONPATH": str(ROOT), "SEATRIAL_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def test_serve_on_a_port_in_use_leaves_nothing_behind(tmp_path: Path, taken: socket.socket) -> None:
    home = tmp_path / "home"
    port = taken.getsockname()[1]
    with taken:
        done = served(home, port)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"port {port} of 127.0.0.1 is in use" in done.stderr
    assert holder(home) is None
    assert not (home / "controller.sock").exists()


def test_what_a_controller_writes_is_for_its_owner_alone(tmp_path: Path) -> None:
    """In a home that others could enter, and though it was started with no mask at all."""
    path = tmp_path / "home"
    path.mkdir()
    path.chmod(0o755)
    mask = os.umask(0)
    try:
        with a_home(path) as home, serving(home):
            open_ = [
                str(one.relative_to(path))
                for one in (path, *path.rglob("*"))
                if one.lstat().st_mode & 0o077 and one.name != "served.log"
            ]
            made = {one.name for one in path.iterdir()}
    finally:
        os.umask(mask)
    assert {"app.db", "app.db-wal", "engine.db", "token", "controller.sock"} <= made
    assert open_ == []


def test_serve_with_a_database_that_is_none_says_so(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "app.db").write_bytes(b"no database" * 1000)
    done = served(home, free_port())
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "file is not a database" in done.stderr
    assert not (home / "controller.sock").exists()


def test_the_end_of_an_answer_waits_for_no_acknowledgement_of_its_beginning() -> None:
    [listening] = port_sockets("127.0.0.1", 0)
    with listening, socket.create_connection(listening.getsockname()):
        connection, _ = listening.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
