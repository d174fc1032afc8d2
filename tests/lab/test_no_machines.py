"""Machines that are only remembered, for tests of the emulated clouds alone."""

from __future__ import annotations

import base64
import time
from datetime import UTC, datetime

import paramiko
import pytest

from tests.lab.machines import ENABLE_GUEST_ATTRIBUTES, MachineSpec, NoMachines


def spec(id_: str = "m", **attributes: str) -> MachineSpec:
    told = {name.replace("_", "-"): value for name, value in attributes.items()}
    return MachineSpec(id_, "gcp", ("10.0.0.2",), "host", attributes=told)


def test_a_machine_is_up_at_once_and_removed_for_good():
    machines = NoMachines()
    machines.boot(spec())
    assert machines.is_up("m")
    assert machines.live() == ("m",)
    with pytest.raises(ValueError, match="m was booted"):
        machines.boot(spec())
    machines.remove("m")
    machines.remove("m")
    assert machines.live() == ()
    assert not machines.is_up("m")
    assert not machines.has_ended("m")


def test_a_machine_takes_the_time_that_it_is_told_to(monkeypatch):
    machines = NoMachines(boot_delay_s=3600)
    machines.boot(spec())
    assert not machines.is_up("m")
    later = time.monotonic() + 3600
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert machines.is_up("m")
    machines.reboot("m")
    assert not machines.is_up("m")


def test_a_machine_that_ended_is_not_up_until_it_is_booted_again():
    machines = NoMachines()
    machines.boot(spec())
    machines.end("m")
    assert machines.has_ended("m")
    assert not machines.is_up("m")
    assert machines.live() == ()
    machines.reboot("m")
    assert machines.is_up("m")
    assert not machines.has_ended("m")


def test_only_who_asked_gets_a_host_key():
    machines = NoMachines()
    machines.boot(spec("shy"))
    machines.boot(spec("open", **{ENABLE_GUEST_ATTRIBUTES: "TRUE"}))
    assert machines.guest_attributes("shy") == {}
    blob = machines.guest_attributes("open")["hostkeys/ssh-ed25519"]
    assert paramiko.Ed25519Key(data=base64.b64decode(blob)).get_bits() == 256


def test_a_preemption_is_remembered():
    machines = NoMachines()
    machines.boot(spec())
    at = datetime(2030, 1, 1, tzinfo=UTC)
    assert machines.preempted_at("m") is None
    machines.announce_preemption("m", at)
    assert machines.preempted_at("m") == at
