"""Metadata of a machine: who may log in, and the host key that its guest publishes."""

from __future__ import annotations

import re
from collections.abc import Iterable

from orchestrator.domain.machine import Login

DEFAULT_USER = "ubuntu"
HOST_KEYS = "hostkeys/"
"""Where among the guest attributes the guest publishes its host keys."""
_KEYS = "ssh-keys"
_ED25519 = re.compile(r"(?:.*/)?ssh-ed25519")


def entry(login: Login, user: str) -> dict[str, str]:
    """Lets one user in, by one key."""
    key = " ".join(login.public_key.split()[:2])
    return {
        _KEYS: f"{user}:{key} {user}",
        "block-project-ssh-keys": "TRUE",
        "enable-oslogin": "FALSE",  # else metadata keys are ignored
        "enable-guest-attributes": "TRUE",  # the guest publishes its host keys there
    }


def user_in(metadata: dict[str, str]) -> str:
    """Whom `entry` let in."""
    user, colon, _ = metadata.get(_KEYS, "").partition(":")
    return user if colon else DEFAULT_USER


def host_key_in(attributes: Iterable[tuple[str, str]]) -> str:
    """The ed25519 host key among guest attributes, base64; empty until it is published."""
    found = (value.strip() for key, value in attributes if _ED25519.fullmatch(key))
    return next(found, "")
