"""Several controllers on one Postgres: a dead one's cells are taken over by a living one."""

from __future__ import annotations

import shutil
from contextlib import contextmanager

import pytest

from tests.e2e.home import a_home, eventually
from tests.e2e.passing_time import let_silence_pass
from tests.e2e.payloads import Steps, matrix
from tests.e2e.test_ssh_hosts import platform
from tests.postgres import start_postgres
from tests.ssh_hosts import SshHost

pytestmark = [pytest.mark.needs_postgres, pytest.mark.needs_sshd]


def test_a_living_controller_takes_over(postgres_url_factory, tmp_path):
    url = postgres_url_factory(migrated=False)
    steps = Steps(tmp_path / "steps", tests=60, seconds=0.4)
    with (
        SshHost(tmp_path / "hosts", name="red") as host,
        a_home(tmp_path / "one", SEATRIAL_DATABASE_URL=url) as one,
        a_home(tmp_path / "two", SEATRIAL_DATABASE_URL=url) as two,
    ):
        for home in (one, two):
            (home.path / "keys").mkdir(parents=True)
            shutil.copy(host.keys_dir / "red_key", home.path / "keys")
        run = one.launch(matrix(tmp_path / "m.yaml", steps.folder, platform(host)))
        two.seatrial("runs")
        eventually(lambda: two.tests_stored(run) >= 5)
        one.kill_controller()
        let_silence_pass(url)
        two.seatrial("watch", run, status=1)
        cell = two.json("show", run)["cells"][0]
        assert cell["counts"]["passed"] == 48
        assert len(cell["attempts"]) == 1
        assert set(steps.begun().values()) == {1}
        eventually(lambda: "took over" in two.log())


def test_a_database_that_is_restarted_strands_nothing(tmp_path):
    """The same controller waits for it and goes on: nobody has to start another one."""
    steps = Steps(tmp_path / "steps", tests=60, seconds=0.2)
    with (
        running_postgres() as server,
        SshHost(tmp_path / "hosts", name="red") as host,
        a_home(tmp_path / "home") as home,
    ):
        home.environment["SEATRIAL_DATABASE_URL"] = server.create("restarted")
        (home.path / "keys").mkdir(parents=True)
        shutil.copy(host.keys_dir / "red_key", home.path / "keys")
        run = home.launch(matrix(tmp_path / "m.yaml", steps.folder, platform(host)))
        controller = home.controller_pid()
        eventually(lambda: home.tests_stored(run) >= 5)
        server.restart(away_s=0)
        eventually(lambda: home.tests_stored(run) >= 15)
        server.restart(away_s=5)
        eventually(lambda: home.get(f"/runs/{run}")["state"] == "finished")
        assert home.controller_pid() == controller
        [cell] = home.json("show", run)["cells"]
        assert (cell["counts"]["passed"], len(cell["attempts"])) == (48, 1)
        assert set(steps.begun().values()) == {1}


@contextmanager
def running_postgres():
    """A server of the test's own, as nobody else likes it restarted."""
    server = start_postgres()
    try:
        yield server
    finally:
        server.stop()
