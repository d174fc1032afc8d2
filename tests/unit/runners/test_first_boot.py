"""What a machine is told for its first boot."""

from __future__ import annotations

import subprocess
import time
from configparser import ConfigParser
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from orchestrator.assets import asset_dir
from orchestrator.domain.machine import ConfigError, Login
from runners.first_boot import USER_DATA_LIMIT_BYTES, cloud_config, startup_script
from tests.waiting import until

TEMPLATES = asset_dir("templates")
DEADLINE = datetime(2026, 11, 21, 13, 5, 7, tzinfo=UTC)
PEM = (
    "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAAhostsecret\nBBBB==\n"
    "-----END OPENSSH PRIVATE KEY-----\n"
)
LOGIN = Login(
    public_key="ssh-ed25519 AAAAlogin lease-1",
    private_key="never shown",
    host_public_key="ssh-ed25519 AAAAhost",
    host_private_key=PEM,
)


def rendered(user: str = "ubuntu", expires_at: datetime = DEADLINE) -> str:
    return cloud_config(LOGIN, user=user, expires_at=expires_at, templates=TEMPLATES)


def parsed(user: str = "ubuntu") -> dict[str, object]:
    found = YAML(typ="safe").load(rendered(user))
    assert isinstance(found, dict)
    return found


def test_cloud_init_knows_it_for_a_configuration_of_its_own() -> None:
    assert rendered().splitlines()[0] == "#cloud-config"


def test_the_injected_host_key_is_the_leases_and_the_images_keys_go() -> None:
    config = parsed()
    assert config["ssh_keys"] == {
        "ed25519_private": PEM,
        "ed25519_public": "ssh-ed25519 AAAAhost",
    }
    assert config["ssh_deletekeys"] is True
    assert config["ssh_pwauth"] is False
    assert config["disable_root"] is True


def test_googles_guest_agent_is_told_to_leave_the_injected_host_key_alone() -> None:
    (file,) = parsed()["write_files"]  # type: ignore[misc]
    assert file["path"] == "/etc/default/instance_configs.cfg"
    assert file["append"] is True, "the image's own settings stay"
    told = ConfigParser()
    told.read_string(file["content"])
    assert told.getboolean("InstanceSetup", "set_host_keys") is False


@pytest.mark.parametrize("user", ["ubuntu", "ec2-user"])
def test_one_key_is_let_in_as_the_named_user(user: str) -> None:
    config = parsed(user)
    assert config["ssh_authorized_keys"] == [LOGIN.public_key]
    users = config["users"]
    assert isinstance(users, list)
    assert users[0] == "default"
    assert (users[1]["name"], users[1]["ssh_authorized_keys"]) == (user, [LOGIN.public_key])


def test_the_private_half_of_the_login_is_never_sent() -> None:
    assert LOGIN.private_key not in rendered()


def test_the_same_lease_gives_the_same_bytes_in_any_zone_of_time() -> None:
    elsewhere = DEADLINE.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert rendered() == rendered(expires_at=elsewhere)
    assert rendered() == rendered(expires_at=DEADLINE + timedelta(microseconds=3))


def test_the_deadline_is_absolute_in_both_timers() -> None:
    (script,) = parsed()["bootcmd"]  # type: ignore[misc]
    assert f"-lt {int(DEADLINE.timestamp())} ]" in script
    assert "OnCalendar=2026-11-21 13:05:07 UTC" in script


def test_it_fits_into_what_ec2_takes() -> None:
    assert len(rendered().encode()) < USER_DATA_LIMIT_BYTES / 2


@pytest.mark.parametrize("user", ["", "Root", "a b", "x\n- evil", "a" * 33, "$(id)"])
def test_a_name_that_is_none_is_refused(user: str) -> None:
    with pytest.raises(ConfigError, match=r"image\.user"):
        rendered(user)


def test_too_much_is_refused_before_a_cloud_does() -> None:
    long = Login("ssh-ed25519 A", "x", "ssh-ed25519 B", "k" * USER_DATA_LIMIT_BYTES)
    with pytest.raises(ConfigError, match="bytes, and clouds take 16384"):
        cloud_config(long, user="ubuntu", expires_at=DEADLINE, templates=TEMPLATES)


def test_a_missing_template_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"startup_script\.sh\.j2 cannot be used"):
        startup_script(expires_at=DEADLINE, templates=tmp_path)


def test_both_ways_to_boot_arm_the_same_timer() -> None:
    (script,) = parsed()["bootcmd"]  # type: ignore[misc]
    other = startup_script(expires_at=DEADLINE, templates=TEMPLATES)
    assert other.startswith("#!/bin/sh\n")
    assert script.strip() in other


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_the_script_is_valid_shell(shell: str) -> None:
    script = startup_script(expires_at=DEADLINE, templates=TEMPLATES)
    checked = subprocess.run([shell, "-n"], input=script, text=True, capture_output=True)
    assert (checked.returncode, checked.stderr) == (0, "")


def powered_off(tmp_path: Path, expires_at: datetime) -> Path:
    """Run the script with a `shutdown` of our own on the path; answers where that writes."""
    programs = tmp_path / "programs"
    programs.mkdir()
    said = tmp_path / "said"
    shutdown = programs / "shutdown"
    # It ends the timer too, as the real one does: its parent is the timer's shell.
    shutdown.write_text(f'#!/bin/sh\necho "$@" >>{said}\nkill $PPID\n')
    (programs / "systemctl").write_text("#!/bin/sh\nexit 0\n")
    for program in programs.iterdir():
        program.chmod(0o755)
    script = startup_script(expires_at=expires_at, templates=TEMPLATES)
    started = time.monotonic()
    subprocess.run(
        ["sh", "-e", "-c", script],
        env={"PATH": f"{programs}:/usr/bin:/bin"},
        check=True,
        timeout=100,
    )
    assert time.monotonic() - started < 100  # it is detached: nothing waits for the deadline
    return said


@pytest.mark.skipif(
    Path("/run/systemd/system").is_dir(), reason="would arm a timer of this computer's systemd"
)
def test_the_plain_timer_powers_off_when_its_time_has_come(tmp_path: Path) -> None:
    said = powered_off(tmp_path, datetime.now(UTC) - timedelta(seconds=1))
    until(lambda: said.exists() and said.read_text().endswith("\n"))
    assert said.read_text() == "-h now\n"
