"""Public keys as files: a keyring in JSON with dates, or a single key in PEM without."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from securesystemslib.signer import SSlibKey  # type: ignore[attr-defined]

from orchestrator.application.ports.signer import KEYRING, NotVerifiedError
from orchestrator.domain.gate.signing_key import PublicKey

_PEM = b"-----BEGIN"
_NO_DATES = "the key is given without dates, so nobody checked whether it had ended"


@dataclass(frozen=True, slots=True)
class Keyring:
    """Keys by id."""

    keys: Mapping[str, PublicKey]
    remarks: tuple[str, ...] = ()
    """What they do not allow to check."""


def read_keyring(keys: bytes) -> Keyring:
    """The keys of a file. Raises NotVerifiedError."""
    return _of_pem(keys) if keys.lstrip().startswith(_PEM) else _of_json(keys)


def _of_pem(keys: bytes) -> Keyring:
    try:
        public = load_pem_public_key(keys)
    except ValueError as error:
        raise NotVerifiedError("the key file holds no public key in PEM") from error
    if not isinstance(public, Ed25519PublicKey):
        raise NotVerifiedError("the key file holds a key that is not of the kind Ed25519")
    known = SSlibKey.from_crypto(public)
    key = PublicKey(id=known.keyid, public=str(known.keyval["public"]))
    return Keyring({key.id: key}, (_NO_DATES,))


def _of_json(keys: bytes) -> Keyring:
    try:
        said = json.loads(keys)
        if said["kind"] != KEYRING or said["v"] != 1:
            raise ValueError(said["kind"])
        found = [_key(one) for one in said["keys"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise NotVerifiedError(
            "the key file is neither a keyring (`seatrial gate keys export`) nor a key in PEM"
        ) from error
    return Keyring({key.id: key for key in found})


def _key(one: Mapping[str, str | None]) -> PublicKey:
    """A key whose id is made from its bytes: nobody can put another under a known name."""
    public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(one["public"] or ""))
    known = SSlibKey.from_crypto(public)
    if known.keyid != one["id"]:
        raise ValueError("the id is another key's")
    return PublicKey(
        id=known.keyid,
        public=str(known.keyval["public"]),
        created_at=_time(one.get("created")),
        not_after=_time(one.get("not_after")),
        retired_at=_time(one.get("retired")),
    )


def _time(said: str | None) -> datetime | None:
    at = datetime.fromisoformat(said) if said else None
    if at is not None and at.tzinfo is None:
        raise ValueError("a time without a zone")
    return at
