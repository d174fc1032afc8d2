"""Which addresses a message may be brought to: a channel's URL may be anybody's idea."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

Address = IPv4Address | IPv6Address

_NAT64 = ip_network("64:ff9b::/96")
_SERVICES = frozenset(
    ip_address(one)
    for one in ("168.63.129.16", "100.100.100.200", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254")
)
"""Where clouds tell a machine of itself, keys too; 169.254.169.254 is link-local anyway."""


REMEDY = ": add the channel with --allow-private if it is meant"


def refusal(address: str, *, allow_private: bool, remedy: str = REMEDY) -> str:
    """Why nothing is sent to this address; empty where it may be.

    `remedy` ends the sentence about a private one.
    """
    for one in _meant(ip_address(address.partition("%")[0])):
        why = _refusal(one, allow_private=allow_private, remedy=remedy)
        if why:
            return f"{address} {why}"
    return ""


def _refusal(one: Address, *, allow_private: bool, remedy: str) -> str:
    if one.is_link_local or one in _SERVICES:
        return "is where a cloud tells a machine of itself: nothing is ever sent there"
    if one.is_multicast or one.is_unspecified or (one.is_reserved and not one.is_loopback):
        return "is no address of a receiver"
    if one.is_global or allow_private:
        return ""
    kind = "this computer's own" if one.is_loopback else "a private"
    return f"is {kind} address{remedy}"


def _meant(address: Address) -> Iterator[Address]:
    """The address, or the IPv4 one that it stands for; where it is a tunnel to one, both."""
    if isinstance(address, IPv4Address):
        yield address
    elif address.ipv4_mapped is not None:
        yield address.ipv4_mapped
    elif address in _NAT64:
        yield IPv4Address(int(address) & 0xFFFFFFFF)
    else:
        yield address
        yield from (one for one in (address.sixtofour, *(address.teredo or ())) if one is not None)
