"""Signs documents, and checks signatures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from orchestrator.domain.gate.signing_key import PublicKey

Document = Mapping[str, object]
KEYRING = "seatrial-keyring"
"""What a file of public keys says that it is."""


class NotVerifiedError(ValueError):
    """The signature or the content of a bundle is invalid; the message says why."""


class KeyUnusableError(Exception):
    """A signing key cannot be read or kept; the text says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """A verified bundle."""

    verdict: Document
    """The verdict's document."""
    key: PublicKey
    statements: tuple[Document, ...]
    """Of the cells, in their order."""
    remarks: tuple[str, ...] = ()
    """What could not be checked, and why."""


class Notary(Protocol):
    """Signs documents, and checks signatures."""

    def held(self) -> tuple[str, ...]:
        """Ids of the keys that can sign here, the newest first. Raises KeyUnusableError."""
        ...

    def public(self, key_id: str) -> str:
        """The public half of a held key, in hex."""
        ...

    def can_make(self) -> bool:
        """Whether keys are made here; not where one was handed in as a file."""
        ...

    def make(self) -> str:
        """Make a key; its id. Raises KeyUnusableError. Not idempotent."""
        ...

    def sign(self, documents: Sequence[bytes], key_id: str) -> bytes:
        """A bundle: an envelope a line, in the same order. Raises KeyUnusableError."""
        ...

    def verify(self, bundle: bytes, keys: bytes) -> Verified:
        """Check a bundle against a keyring (JSON) or a public key (PEM), with nothing else.

        Raises NotVerifiedError.
        """
        ...
