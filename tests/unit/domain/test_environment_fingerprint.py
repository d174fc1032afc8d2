"""What software and hardware results were produced with."""

from __future__ import annotations

from orchestrator.domain.environment_fingerprint import environment_diff, fingerprint

DEVICE = {"vendor": "nvidia", "name": "NVIDIA L4", "uuid": "GPU-1", "driver": "580.1"}
L4 = {
    "python": "3.10.12",
    "torch": "2.7.0+cu128",
    "cuda": "12.8",
    "hip": None,
    "packages": {"Typing_Extensions": "4.1", "numpy": "2.0"},
    "machine": {
        "os": "Ubuntu 22.04",
        "hostname": "a",
        "devices": [DEVICE | {"compute_capability": "8.9"}],
    },
}


def test_the_same_kind_of_machine_has_the_same_one():
    device = L4["machine"]["devices"][0] | {"uuid": "GPU-2"}
    other = L4 | {"machine": {"os": "Ubuntu 22.04", "hostname": "b", "devices": [device]}}
    assert fingerprint(L4, subject="") == fingerprint(dict(reversed(other.items())), subject="")
    assert len(fingerprint(L4, subject="")) == 64
    assert environment_diff(L4, other, subject="") == ()


def test_a_difference_is_told_with_both_sides_the_stack_first():
    newer = L4 | {"torch": "2.8.0", "hip": "6", "cuda": None, "packages": {"numpy": "2.1"}}
    assert fingerprint(newer, subject="") != fingerprint(L4, subject="")
    assert environment_diff(L4, newer, subject="") == (
        ("runtime", "cuda 12.8", "hip 6"),
        ("torch", "2.7.0+cu128", "2.8.0"),
        ("package numpy", "2.0", "2.1"),
        ("package typing-extensions", "4.1", "-"),
    )


def test_another_device_or_driver_is_another_environment():
    two = L4 | {"machine": {"os": "Ubuntu 22.04", "devices": [DEVICE, DEVICE]}}
    assert environment_diff(L4, two, subject="") == (
        ("device compute capability", "8.9", "-"),
        ("devices", "1", "2"),
    )


def test_nothing_known_is_no_fingerprint_and_nonsense_is_nothing_known():
    assert fingerprint({}, subject="") == ""
    assert fingerprint({"machine": "x", "packages": [1], "torch": None}, subject="") == ""
    assert fingerprint({"machine": {"devices": "none"}}, subject="") == ""


def test_another_release_of_the_subject_is_tested_in_the_same_environment():
    then = {"torch": "2.7.0", "packages": {"Lil.Net": "0.3.1", "numpy": "2.0"}}
    now = {"torch": "2.7.0", "packages": {"Lil.Net": "0.3.2", "numpy": "2.0"}}
    assert fingerprint(then, subject="lil_net") == fingerprint(now, subject="lil_net")
    assert environment_diff(then, now, subject="lil_net") == ()
    assert fingerprint(then, subject="other") != fingerprint(now, subject="other")
    assert environment_diff(then, now, subject="other") == (("package lil-net", "0.3.1", "0.3.2"),)
    nightly = {"torch": "2.8.0", "packages": {"torch": "2.8.0"}}
    stable = {"torch": "2.7.0", "packages": {"torch": "2.7.0"}}
    assert environment_diff(stable, nightly, subject="torch") == ()


def test_where_nothing_but_the_subject_is_known_there_is_no_fingerprint():
    assert fingerprint({"packages": {"lilnet": "0.3.1"}}, subject="lilnet") == ""
