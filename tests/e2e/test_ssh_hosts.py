"""A matrix with OpenSSH hosts of the test's own making."""

from __future__ import annotations

import shutil
import time

import pytest

from tests.e2e.home import Home, a_home, eventually
from tests.e2e.payloads import Steps, matrix
from tests.ssh_hosts import Relay, SshHost, fingerprint

pytestmark = pytest.mark.needs_sshd


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    with a_home(tmp_path_factory.mktemp("ssh") / "home", SEATRIAL_CONTACT_TIMEOUT_S="30") as home:
        yield home


@pytest.fixture
def hosts(tmp_path, home):
    made = [SshHost(tmp_path / "hosts", name=name).start() for name in ("red", "blue")]
    (home.path / "keys").mkdir(parents=True, mode=0o700, exist_ok=True)
    for host in made:
        shutil.copy(host.keys_dir / f"{host.name}_key", home.path / "keys")
    yield made
    for host in made:
        host.stop()


def platform(host: SshHost, *, port: int | None = None, host_key: str | None = None) -> str:
    """The matrix's row for a host."""
    endpoint = host.endpoint(port=port, host_key=host_key)
    return (
        f"  - id: {host.name}\n    provider: static\n    hosts:\n"
        f"      - {{address: {endpoint.address}, port: {endpoint.port}, user: {endpoint.user}, "
        f"key_file: {endpoint.key_file}, host_key: {endpoint.host_key}}}\n"
    )


def cell_of(run: dict, name: str) -> dict:
    return next(cell for cell in run["cells"] if cell["id"] == name)


def test_two_hosts_at_the_same_time(home, hosts, tmp_path):
    steps = Steps(tmp_path / "steps", tests=20, seconds=0.1, hosts=2)
    file = matrix(tmp_path / "m.yaml", steps.folder, "".join(map(platform, hosts)))
    home.seatrial("run", str(file), status=1)
    run = home.json("show", "latest")
    assert {cell["id"]: cell["counts"]["passed"] for cell in run["cells"]} == {
        "red": 16,
        "blue": 16,
    }
    assert set(steps.begun().values()) == {2}
    spans = [running_span(cell) for cell in run["cells"]]
    assert max(begin for begin, _ in spans) < min(end for _, end in spans), "they ran in parallel"
    for host in hosts:
        left = list((host.home / ".seatrial" / "attempts").glob("*"))
        assert left == [], "the attempt's folder goes when the host is given back"
    for cell in run["cells"]:
        assert cell["leases"][-1]["state"] == "gone"


def test_hosts_are_checked_before_a_launch(home, hosts, tmp_path):
    red, blue = hosts
    steps = Steps(tmp_path / "steps", tests=1, seconds=0)
    file = matrix(tmp_path / "m.yaml", steps.folder, "".join(map(platform, hosts)))
    checked = home.json("plan", str(file), "--check")["hosts"]
    assert [(one["platform"], one["failure"]) for one in checked] == [("red", ""), ("blue", "")]
    assert all("python" in one["pythons"][0] for one in checked)
    assert steps.begun() == {}
    rows = platform(red, host_key=blue.endpoint().host_key) + platform(blue, port=1)
    file = matrix(tmp_path / "wrong.yaml", steps.folder, rows)
    shown = home.seatrial("plan", str(file), "--check", status=1)
    assert "host key" in shown
    assert "Connection refused" in shown
    gpu = platform(red) + "    accelerator: {vendor: nvidia, name: L4}\n"
    file = matrix(tmp_path / "gpu.yaml", steps.folder, gpu)
    shown = home.seatrial("plan", str(file), "--check", status=1)
    assert "asked for 1 x nvidia L4, found no accelerator" in " ".join(shown.split())


def running_span(cell: dict) -> tuple[str, str]:
    at = {step["to_state"]: step["at"] for step in cell["transitions"]}
    return at["running"], at["collecting"]


def test_the_payload_is_shipped_once_per_host(home, hosts, tmp_path):
    steps = Steps(tmp_path / "steps", tests=2, seconds=0)
    file = matrix(tmp_path / "m.yaml", steps.folder, platform(hosts[0]))
    home.seatrial("run", str(file))
    shelf = hosts[0].home / ".seatrial" / "payloads"
    [before] = [folder.stat().st_ino for folder in shelf.iterdir()]
    home.seatrial("run", str(file))
    assert [folder.stat().st_ino for folder in shelf.iterdir()] == [before]


def test_a_cut_that_heals_loses_nothing(home, hosts, tmp_path):
    steps = Steps(tmp_path / "steps", tests=40, seconds=0.3)
    red = hosts[0]
    with Relay(red.port) as relay:
        file = matrix(tmp_path / "m.yaml", steps.folder, platform(red, port=relay.port))
        run = home.launch(file)
        eventually(lambda: home.tests_stored(run) >= 5)
        relay.cut()
        time.sleep(5)
        relay.heal()
        eventually(lambda: home.tests_stored(run) >= 25)
        relay.stall()
        time.sleep(5)
        relay.heal()
        home.seatrial("watch", run, status=1)
    steps.check(home.json("show", run))


def test_another_host_key_is_refused_before_anything_is_sent(home, hosts, tmp_path):
    red, blue = hosts
    steps = Steps(tmp_path / "steps", tests=2, seconds=0)
    row = platform(red, host_key=blue.host_key())
    home.seatrial("run", str(matrix(tmp_path / "m.yaml", steps.folder, row)), status=5)
    cell = cell_of(home.json("show", "latest"), "red")
    assert (cell["outcome"], cell["reason"]) == ("errored", "host_key")
    assert fingerprint(red.host_key()) in cell["detail"]
    assert fingerprint(blue.host_key()) in cell["detail"]
    assert not (red.home / ".seatrial").exists()
    assert "Accepted" not in red.log


def test_a_host_that_dies_keeps_what_it_had_sent(home, hosts, tmp_path):
    red = hosts[0]
    steps = Steps(tmp_path / "steps", tests=100, seconds=0.2)
    file = matrix(tmp_path / "m.yaml", steps.folder, platform(red), limits="{infra_retries: 0}")
    run = home.launch(file)
    eventually(lambda: home.tests_stored(run) >= 8)
    red.kill()
    home.seatrial("watch", run, status=1, timeout=200)
    cell = cell_of(home.json("show", run), "red")
    assert cell["attempts"][0]["cause"]["reason"] == "lost"
    assert cell["counts"]["passed"] >= 6
    assert cell["counts"]["missing"] > 0
    assert sum(cell["counts"].values()) == 100


def test_a_pool_gives_each_cell_a_host_of_its_own(home, hosts, tmp_path):
    steps = Steps(tmp_path / "steps", tests=3, seconds=0.1)
    rows = "".join(
        platform(host).replace(f"id: {host.name}", f"id: {host.name}{n}")
        for n in range(2)
        for host in hosts
    )
    home.seatrial("run", str(matrix(tmp_path / "m.yaml", steps.folder, rows)))
    run = home.json("show", "latest")
    assert [cell["outcome"] for cell in run["cells"]] == ["passed"] * 4
    assert {cell["leases"][-1]["place"] for cell in run["cells"]} == {
        f"127.0.0.1:{host.port}" for host in hosts
    }


def test_kill_of_the_controller_while_hosts_run(home: Home, hosts, tmp_path):
    steps = Steps(tmp_path / "steps", tests=40, seconds=0.2)
    file = matrix(tmp_path / "m.yaml", steps.folder, "".join(map(platform, hosts)))
    run = home.launch(file)
    eventually(lambda: home.tests_stored(run) >= 10)
    home.kill_controller()
    home.seatrial("watch", run, status=1)
    shown = home.json("show", run)
    assert {cell["counts"]["passed"] for cell in shown["cells"]} == {32}
    assert set(steps.begun().values()) == {2}
