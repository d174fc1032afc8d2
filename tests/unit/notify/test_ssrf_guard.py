"""Which addresses a message may be brought to."""

from __future__ import annotations

import pytest

from orchestrator.adapters.guarded_http import refusal

PUBLIC = ("93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946", "1.1.1.1")
PRIVATE = (
    *("127.0.0.1", "127.1.2.3", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "::1"),
    *("fd00::1", "::ffff:10.0.0.1", "::ffff:127.0.0.1", "2002:7f00:1::", "64:ff9b::7f00:1"),
    *("64:ff9b::a00:1", "198.18.0.1"),
)
NEVER = (
    *("169.254.169.254", "169.254.170.2", "fe80::1", "fe80::1%eth0", "fd00:ec2::254"),
    *("168.63.129.16", "100.100.100.200", "192.0.0.192", "::ffff:169.254.169.254"),
    *("64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::", "0.0.0.0", "::", "224.0.0.1", "ff02::1"),
    *("255.255.255.255", "240.0.0.1", "fd20:ce::254"),
)


@pytest.mark.parametrize("address", PUBLIC)
def test_the_internet_is_open(address: str) -> None:
    assert refusal(address, allow_private=False) == ""


@pytest.mark.parametrize("address", PRIVATE)
def test_ones_own_network_only_where_it_is_allowed(address: str) -> None:
    said = refusal(address, allow_private=False)
    assert said.startswith(address)
    assert "--allow-private" in said
    assert refusal(address, allow_private=True) == ""


@pytest.mark.parametrize("address", NEVER)
@pytest.mark.parametrize("allow_private", [False, True])
def test_what_clouds_tell_machines_is_never_asked(address: str, allow_private: bool) -> None:
    assert refusal(address, allow_private=allow_private)
