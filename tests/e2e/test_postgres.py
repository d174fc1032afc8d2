"""Several controllers on one Postgres: a dead one's cells are taken over by a living one."""

from __future__ import annotations

import shutil

import pytest

from tests.e2e.home import a_home, eventually
from tests.e2e.payloads import Steps, matrix
from tests.e2e.test_ssh_hosts import platform
from tests.ssh_hosts import SshHost, sshd_missing

pytestmark = [
    pytest.mark.needs_postgres,
    pytest.mark.needs_sshd,
    pytest.mark.skipif(sshd_missing() is not None, reason=str(sshd_missing())),
]


def test_a_living_controller_takes_over(postgres_url_factory, tmp_path):
    url = postgres_url_factory(migrated=False)
    steps = Steps(tmp_path / "steps", tests=100, seconds=0.4)
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
        two.seatrial("watch", run, status=1)
        cell = two.json("show", run)["cells"][0]
        assert cell["counts"]["passed"] == 80
        assert len(cell["attempts"]) == 1
        assert set(steps.begun().values()) == {1}
        eventually(lambda: "took over" in two.log())
