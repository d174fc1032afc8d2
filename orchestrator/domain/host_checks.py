"""Checks of hosts that a matrix names: machines of your own, and bastions."""

from __future__ import annotations

import base64
import binascii
from dataclasses import replace
from pathlib import PurePosixPath

from orchestrator.domain.machine import ConfigError
from orchestrator.domain.matrix import Host


def checked_host(host: Host, *, at: str) -> Host:
    """Return the host with its values stripped. Raises ConfigError, naming the field below `at`."""
    address = _text(host.address, at=f"{at}.address")
    user = _text(host.user, at=f"{at}.user")
    if not 0 < host.port < 65536:
        raise ConfigError(f"{at}.port: {host.port!r} is no port number")
    key_file = _file_name(host.key_file, at=f"{at}.key_file")
    host_key = _host_key(host.host_key, at=f"{at}.host_key")
    return replace(host, address=address, user=user, key_file=key_file, host_key=host_key)


def _text(value: str, *, at: str) -> str:
    if not value.strip():
        raise ConfigError(f"{at}: missing")
    if not value.isprintable():
        raise ConfigError(f"{at}: holds characters that cannot be printed")
    return value.strip()


def _file_name(value: str, *, at: str) -> str:
    name = _text(value, at=at)
    if PurePosixPath(name).name != name or name == "..":
        raise ConfigError(
            f"{at}: {name!r} is not a bare file name; the key lies in the controller's keys folder"
        )
    return name


def _host_key(value: str, *, at: str) -> str:
    words = _text(value, at=at).split()
    try:
        kind, blob = words[0], base64.b64decode(words[1], validate=True)
    except (IndexError, binascii.Error):
        kind, blob = words[0], b""
    name = kind.encode()
    if not blob.startswith(len(name).to_bytes(4, "big") + name):
        raise ConfigError(
            f"{at}: not a public host key; write it as known_hosts has it, for example "
            "`ssh-ed25519 AAAA...` (ssh-keyscan shows it; compare it on the host's own console)"
        )
    return f"{kind} {words[1]}"
