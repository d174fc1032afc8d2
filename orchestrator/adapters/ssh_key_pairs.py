"""Generates ed25519 keys; the library is imported when the first key is generated."""

# ruff: noqa: PLC0415
from __future__ import annotations

from orchestrator.domain.machine import Login


def new_login() -> Login:
    """Return a key pair for signing in on a machine, and a host key pair for the machine."""
    public, private = _pair()
    host_public, host_private = _pair()
    return Login(public, private, host_public, host_private)


def _pair() -> tuple[str, str]:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    return public.decode(), private.decode()
