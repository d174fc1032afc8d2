"""Reads a platform's ``hosts``."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from orchestrator.domain.machine import ConfigError, SshReach

KEYS = frozenset({"address", "port", "user", "key_file", "host_key"})
SSH_PORT = 22


@dataclass(frozen=True, slots=True)
class Host:
    """One host of a pool."""

    address: str
    port: int
    user: str
    key_file: str
    host_key: str

    @property
    def name(self) -> str:
        """``address:port``, unique within a pool."""
        shown = f"[{self.address}]" if ":" in self.address else self.address
        return f"{shown}:{self.port}"

    def reach(self) -> SshReach:
        """How to connect to it."""
        return SshReach(
            address=self.address,
            user=self.user,
            host_key=self.host_key,
            key_file=self.key_file,
            port=self.port,
        )

    def options(self) -> dict[str, str]:
        """The host's fields as text, for its place."""
        return {
            "address": self.address,
            "port": str(self.port),
            "user": self.user,
            "key_file": self.key_file,
            "host_key": self.host_key,
        }


def parse_hosts(platform: Mapping[str, object]) -> tuple[Host, ...]:
    """The platform's hosts in their order. Raises ConfigError, naming the field."""
    listed = platform.get("hosts")
    if not isinstance(listed, list | tuple) or not listed:
        raise ConfigError("hosts: list at least one host with its address, user and keys")
    hosts: list[Host] = []
    for index, entry in enumerate(listed):
        host = _parse(entry, at=f"hosts[{index}]")
        if any(host.name == other.name for other in hosts):
            raise ConfigError(f"hosts[{index}]: {host.name} is listed twice")
        hosts.append(host)
    return tuple(hosts)


def _parse(entry: object, *, at: str) -> Host:
    if not isinstance(entry, Mapping):
        raise ConfigError(f"{at}: not a mapping with address, user, key_file and host_key")
    unknown = sorted(str(key) for key in entry if key not in KEYS)
    if unknown:
        raise ConfigError(f"{at}.{unknown[0]}: unknown; a host has {', '.join(sorted(KEYS))}")
    return Host(
        address=_text(entry, "address", at=at),
        port=_port(entry, at=at),
        user=_text(entry, "user", at=at),
        key_file=_file_name(entry, at=at),
        host_key=_host_key(entry, at=at),
    )


def _text(entry: Mapping[str, object], key: str, *, at: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{at}.{key}: missing")
    if any(not letter.isprintable() for letter in value):
        raise ConfigError(f"{at}.{key}: holds characters that cannot be printed")
    return value.strip()


def _port(entry: Mapping[str, object], *, at: str) -> int:
    value = entry.get("port", SSH_PORT)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 65536:
        raise ConfigError(f"{at}.port: {value!r} is no port number")
    return value


def _file_name(entry: Mapping[str, object], *, at: str) -> str:
    name = _text(entry, "key_file", at=at)
    if PurePosixPath(name).name != name or name == "..":
        raise ConfigError(
            f"{at}.key_file: {name!r} is not a bare file name; the key lies in the controller's "
            "keys folder"
        )
    return name


def _host_key(entry: Mapping[str, object], *, at: str) -> str:
    words = _text(entry, "host_key", at=at).split()
    try:
        kind, blob = words[0], base64.b64decode(words[1], validate=True)
    except (IndexError, binascii.Error):
        kind, blob = words[0], b""
    name = kind.encode()
    if not blob.startswith(len(name).to_bytes(4, "big") + name):
        raise ConfigError(
            f"{at}.host_key: not a public host key; write it as known_hosts has it, for example "
            "`ssh-ed25519 AAAA...` (ssh-keyscan shows it; compare it on the host's own console)"
        )
    return f"{kind} {words[1]}"
