"""Port of signing and verification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from orchestrator.domain.gate.verdict import PublicKey

Document = Mapping[str, object]
KEYRING = "seatrial-keyring"
"""Type marker of a keyring file."""


class NotVerifiedError(ValueError):
    """The signature or the content of a bundle is invalid; the message says why."""


class KeyUnusableError(Exception):
    """A signing key cannot be read or stored; the text says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """A verdict bundle whose signature was verified, with the key that signed it."""

    verdict: Document
    """The verdict document."""
    key: PublicKey
    statements: tuple[Document, ...]
    """Statements about cells, in order."""
    remarks: tuple[str, ...] = ()
    """Parts that could not be verified, with the reasons."""


class Signer(Protocol):
    """Port of signing and verification."""

    def held(self) -> tuple[str, ...]:
        """Return the ids of usable keys, newest first. Raises KeyUnusableError."""
        ...

    def public(self, key_id: str) -> str:
        """Return the public half of a usable key, in hex."""
        ...

    def can_make(self) -> bool:
        """Whether keys can be created here; not where one was provided as a file."""
        ...

    def make(self) -> str:
        """Create a key; return its id. Raises KeyUnusableError. Not idempotent."""
        ...

    def sign(self, documents: Sequence[bytes], key_id: str) -> bytes:
        """Sign documents into a bundle.

        One envelope per line, in order. Raises KeyUnusableError.
        """
        ...

    def verify(self, bundle: bytes, keys: bytes) -> Verified:
        """Verify a bundle against a keyring (JSON) or a public key (PEM), offline.

        Raises NotVerifiedError.
        """
        ...
