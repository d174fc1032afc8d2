"""Signatures: Ed25519 over in-toto statements in DSSE envelopes."""

from __future__ import annotations


class DsseNotary:
    """Implements the Notary."""
