"""What docker-compose.yml starts, without the containers: its secrets, its command, its checks."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from orchestrator.adapters.clock import new_id
from orchestrator.domain.channel import Announcement, LineageState
from orchestrator.store.database import open_database
from tests.accounts import open_folder
from tests.e2e.doc_pages import snippet
from tests.e2e.home import ROOT, alive, eventually
from tests.e2e.passing_time import let_leases_end
from tests.integration.test_deployment_files import health_check
from tests.integration.webhook_receiver import Receiver, Reply, receiver
from tests.postgres import _identity, _programs
from tests.ssh_hosts import free_port

pytestmark = [pytest.mark.needs_postgres, pytest.mark.slow]
NOBODY = 65534
UNPRIVILEGED = (
    [
        *("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs"),
        # The interpreter of the tests may lie in root's own folder: reading is all that is kept.
        *("--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"),
        *("--bounding-set=-all,+dac_read_search",),
    ]
    if os.geteuid() == 0
    else []
)
"""Starts a program as a user who may write nowhere but where it is its own."""


@contextmanager
def database_of(secrets: Path, port: int) -> Iterator[None]:
    """A server as the image's entry point makes one: the password is the file's."""
    programs, identity = _programs(), _identity()
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    shutil.copy(secrets / "database_password", folder / "password")
    if identity:
        for path in (folder, folder / "password"):
            os.chown(path, identity["user"], identity["group"])
    made = ("-U", "seatrial", "--auth=scram-sha-256", f"--pwfile={folder / 'password'}", "-EUTF8")
    subprocess.run(
        [programs / "initdb", "-D", folder / "data", *made],
        check=True, capture_output=True, cwd=folder, **identity,
    )  # fmt: skip
    settings = ("-k", folder, "-p", str(port), "-c", "listen_addresses=127.0.0.1")
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [programs / "postgres", "-D", folder / "data", *settings],
            stdout=log, stderr=log, cwd=folder, **identity,
        )  # fmt: skip
    try:
        create_database(programs, port, (secrets / "database_password").read_text())
        yield
    finally:
        server.send_signal(signal.SIGQUIT)
        server.wait(120)
        shutil.rmtree(folder, ignore_errors=True)


def create_database(programs: Path, port: int, password: str) -> None:
    """Wait for the server and make the database, as the image's entry point does."""
    where = ("-h", "127.0.0.1", "-p", str(port), "-U", "seatrial")
    asked = [programs / "pg_isready", *where]
    eventually(lambda: subprocess.run(asked, capture_output=True).returncode == 0)
    environment = {"PGPASSWORD": password, "PATH": os.environ["PATH"]}
    subprocess.run([programs / "createdb", *where, "seatrial"], check=True, env=environment)


@dataclass
class Controller:
    """One process, as the image's command starts it."""

    home: Path
    port: int
    process: subprocess.Popen[bytes]
    token: str

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.request(method, self.url + path, headers=headers, timeout=120, **more)

    def is_healthy(self) -> bool:
        """Whether the check of the image says so."""
        environment = {"SEATRIAL_HOME": str(self.home)}
        done = subprocess.run(health_check(), env=environment, capture_output=True)
        return done.returncode == 0

    def log(self) -> str:
        return (self.home / "log").read_text(errors="replace")


@contextmanager
def controller(folder: Path, name: str, token: str) -> Iterator[Controller]:
    """`serve --host 0.0.0.0 --port N`, as a user who owns nothing but its home."""
    home = folder / name
    home.mkdir()
    if os.geteuid() == 0:
        os.chown(home, NOBODY, NOBODY)
    port = free_port()
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "SEATRIAL_HOME": str(home),
        "SEATRIAL_DATABASE_URL_FILE": str(folder / "secrets" / "database_url"),
        "SEATRIAL_ADMIN_TOKEN_FILE": str(folder / "secrets" / "admin_token"),
        "SEATRIAL_SIGNING_KEY_FILE": str(folder / "secrets" / "signing_key.pem"),
        "SEATRIAL_PUBLIC_HOSTS": "controller-1,controller-2",
    }
    command = [*UNPRIVILEGED, sys.executable, "-m", "orchestrator", "serve", "--host", "0.0.0.0"]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--port", str(port)],
            env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=home,
        )  # fmt: skip
    try:
        yield Controller(home, port, process, token)
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(120)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """The secrets, made by what the documentation says, and a server that knows them."""
    with open_folder() as folder, ExitStack() as stack:
        script = snippet("how-to/deploy.md", "Secrets")
        subprocess.run(["bash", "-euc", script], cwd=folder, check=True, capture_output=True)
        port = free_port()
        stack.enter_context(database_of(folder / "secrets", port))
        url = folder / "secrets" / "database_url"
        url.chmod(0o600)
        url.write_text(url.read_text().replace("@database/", f"@127.0.0.1:{port}/"))
        url.chmod(0o444)
        (folder / "secrets").chmod(0o755)  # a container is handed the files, not the folder
        yield folder


@pytest.fixture
def two(folder: Path) -> Iterator[list[Controller]]:
    """Two controllers for one test, which may kill them."""
    token = (folder / "secrets" / "admin_token").read_text()
    first, second = (f"{new_id()}-{name}" for name in ("one", "two"))
    with controller(folder, first, token) as one, controller(folder, second, token) as other:
        both = [one, other]
        for each in both:
            eventually(lambda each=each: each.is_healthy() or each.process.poll() is not None)
            assert each.process.poll() is None, each.log()
        yield both


def url(folder: Path) -> str:
    """Of the database."""
    return (folder / "secrets" / "database_url").read_text()


def announced(folder: Path, lineages: list[str], state: str) -> None:
    database = open_database(url(folder))
    for lineage in lineages:
        told = Announcement(
            lineage=lineage, state=LineageState(state), title=lineage, text="", url="",
            at=datetime.now(UTC), key=f"{lineage}:{state}",
        )  # fmt: skip
        assert database.stores.outbox.put(told, new_id=new_id, at=datetime.now(UTC))
    database.close()


def ids(hook: Receiver) -> list[str]:
    return [one.headers["webhook-id"] for one in hook.received]


def test_both_answer_and_deliver_each_message_once(two: list[Controller], folder: Path) -> None:
    answer_with_the_one_token_and_say_it_nowhere(two)
    answer_prometheus_by_their_names(two)
    deliver_each_message_once(two, folder)


def answer_with_the_one_token_and_say_it_nowhere(two: list[Controller]) -> None:
    for each in two:
        assert each.ask("GET", "/api/v1/runs").status_code == 200
        assert httpx.get(each.url + "/api/v1/runs", timeout=120).status_code == 401
        assert httpx.get(each.url + "/metrics", timeout=120).status_code == 401
        assert each.token not in each.log()
        assert "sign in with the token in" in each.log()
    tokens = two[0].ask("GET", "/api/v1/tokens").json()["items"]
    assert [one["name"] for one in tokens] == [pwd.getpwuid(NOBODY).pw_name]


def answer_prometheus_by_their_names(two: list[Controller]) -> None:
    for number, each in enumerate(two, start=1):
        headers = {"Host": f"controller-{number}:8470", "Authorization": f"Bearer {each.token}"}
        figures = httpx.get(each.url + "/metrics", headers=headers, timeout=120)
        assert figures.status_code == 200
        assert "seatrial_build_info" in figures.text
        strange = headers | {"Host": "evil.example"}
        other = httpx.get(each.url + "/metrics", headers=strange, timeout=120)
        assert other.status_code == 400


def waiting(controller: Controller, name: str) -> int:
    hooks = controller.ask("GET", "/api/v1/channels").json()["items"]
    return next(int(hook["waiting"]) for hook in hooks if hook["name"] == name)


def deliver_each_message_once(two: list[Controller], folder: Path) -> None:
    with receiver(Reply()) as hook:
        body = {"name": "once", "target": hook.url, "allow_private": True}
        made = two[0].ask("POST", "/api/v1/channels", json=body)
        assert made.status_code == 201, made.text
        announced(folder, [f"once-{n}" for n in range(30)], "fail")
        eventually(lambda: len(hook.received) >= 30)
        # A message is marked as delivered after its receiver had it.
        eventually(lambda: waiting(two[1], "once") == 0)
        assert len(ids(hook)) == len(set(ids(hook))) == 30
        for one in hook.received:
            one.verified(made.json()["secret"])
        assert two[1].ask("DELETE", "/api/v1/channels/once").status_code == 204


def test_one_is_killed_while_it_sends_and_nothing_is_lost(
    two: list[Controller], folder: Path
) -> None:
    first, second = two
    killed = []

    def kill() -> None:
        """At the tenth message: whoever sends it dies if it is the first controller."""
        if len(hook.received) >= 10 and not killed:
            killed.append(first.process.pid)
            os.kill(first.process.pid, signal.SIGKILL)

    with receiver(Reply(before=kill)) as hook:
        body = {"name": "all", "target": hook.url, "allow_private": True}
        assert second.ask("POST", "/api/v1/channels", json=body).status_code == 201
        announced(folder, [f"all-{n}" for n in range(40)], "fail")
        eventually(lambda: len(set(ids(hook))) == 40)
        assert killed
        eventually(lambda: not alive(first.process.pid))
        # All but the one, whose receiver had it, and of which the dead one told nobody.
        eventually(lambda: waiting(second, "all") <= 1)
        let_leases_end(url(folder))
        eventually(lambda: waiting(second, "all") == 0)
        assert len(hook.received) <= 41
    assert second.is_healthy()
    assert not first.is_healthy()
