"""`seatrial ssh` with OpenSSH on both sides: in by the one key, to the one host."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ssh_hosts import SshHost, another_key
from tests.unit.cli import in_process
from tests.unit.cli.fake_controller import Answer, FakeController
from tests.unit.cli.in_process import ID, SHOWN, Cli

pytestmark = pytest.mark.needs_sshd
cli, controller = in_process.cli, in_process.controller  # the fixtures


@pytest.fixture
def host(tmp_path: Path) -> Iterator[SshHost]:
    made = SshHost(tmp_path / "hosts").start()
    try:
        yield made
    finally:
        made.stop()


def gives(controller: FakeController, host: SshHost, **given: object) -> None:
    access = {
        "address": "127.0.0.1",
        "port": host.port,
        "user": host.user,
        "host_key": host.host_key(),
        "private_key": (host.keys_dir / "host_key").read_text(),
        "key_file": "",
    }
    controller.answers["GET", f"{SHOWN}/cells/gcp-l4/access"] = Answer.of(access | given)


def test_a_command_runs_there_and_its_exit_code_is_ours(
    cli: Cli,
    controller: FakeController,
    host: SshHost,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    gives(controller, host)
    assert cli("ssh", ID, "gcp-l4", "--", "echo $((6*7)); exit 3") == 3
    assert list(scratch.iterdir()) == []
    assert cli("ssh", ID, "gcp-l4", "true") == 0


def test_another_host_key_lets_nobody_in(
    cli: Cli, controller: FakeController, host: SshHost, tmp_path: Path
) -> None:
    other = SshHost(tmp_path / "other")
    gives(controller, host, host_key=other.host_key())
    assert cli("ssh", ID, "gcp-l4", "--", "touch", str(tmp_path / "entered")) == 255
    assert not (tmp_path / "entered").exists()
    assert "Accepted" not in host.log


def test_another_key_lets_nobody_in(
    cli: Cli, controller: FakeController, host: SshHost, tmp_path: Path
) -> None:
    other = SshHost(tmp_path / "other")
    gives(controller, host, private_key=(other.keys_dir / "host_key").read_text())
    assert cli("ssh", ID, "gcp-l4", "--", "touch", str(tmp_path / "entered")) == 255
    assert not (tmp_path / "entered").exists()


def test_through_a_bastion_whose_key_lies_in_the_home(
    cli: Cli, controller: FakeController, host: SshHost, tmp_path: Path
) -> None:
    with SshHost(tmp_path / "bastions", name="bastion") as bastion:
        keys = cli.wiring.settings.home / "keys"
        keys.mkdir(parents=True)
        (bastion.keys_dir / "bastion_key").rename(keys / "bastion_key")
        between = {
            "address": "127.0.0.1",
            "port": bastion.port,
            "user": bastion.user,
            "host_key": bastion.host_key(),
            "key_file": "bastion_key",
        }
        gives(controller, host, bastion=between)
        assert cli("ssh", ID, "gcp-l4", "--", "exit 3") == 3
        assert "Accepted publickey" in bastion.log
        gives(controller, host, bastion=between | {"host_key": another_key(bastion.host_key())})
        assert cli("ssh", ID, "gcp-l4", "true") == 255


def test_through_a_tunnel_of_google(
    cli: Cli,
    controller: FakeController,
    host: SshHost,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = tmp_path / "bin" / "gcloud"
    program.parent.mkdir()
    log = tmp_path / "arguments"
    program.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" > {log}\n'
        f"exec ssh -W 127.0.0.1:{host.port} -p {host.port} -i {host.keys_dir}/host_key "
        f"-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null {host.user}@127.0.0.1\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    command = ["gcloud", "compute", "start-iap-tunnel", "vm", "22", "--zone=a b%h"]
    gives(controller, host, proxy_command=command)
    assert cli("ssh", ID, "gcp-l4", "--", "exit 3") == 3
    assert log.read_text().splitlines() == command[1:], "no shell and no ssh changed them"


def test_a_controller_does_not_choose_what_runs_here(
    cli: Cli, controller: FakeController, host: SshHost, tmp_path: Path
) -> None:
    gives(controller, host, proxy_command=["touch", str(tmp_path / "entered")])
    assert cli("ssh", ID, "gcp-l4", "true") != 0
    assert not (tmp_path / "entered").exists()
