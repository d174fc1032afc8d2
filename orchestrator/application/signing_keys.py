"""Keys that sign verdicts: created on demand, rotated in time, never deleted.

The private half is a file of one controller; the public half is in the database, so that every
controller knows every key. A key that ended still proves what it signed before.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta

from orchestrator.application.context import Context
from orchestrator.application.ports.signer import KEYRING, KeyUnusableError
from orchestrator.domain.gate.verdict import PublicKey

LIFETIME = timedelta(days=365)
"""Lifetime of a key."""
_LOCK = "signing keys"


class KeyMissingError(LookupError):
    """No key of this id is known."""


def signing_key(context: Context) -> PublicKey:
    """Return the key that signs now; create one where there is none. Raises KeyUnusableError."""
    with context.locks.of(_LOCK):
        at = context.clock.now()
        held = _held(context, at)
        usable = [key for key in held if key.ends_at is None or at < key.ends_at]
        if usable:
            return usable[-1]
        return _made(context, held, at)


def rotate_key(context: Context) -> PublicKey:
    """Create a key that signs from now on; retire this controller's other keys.

    Not idempotent. Raises KeyUnusableError if the key was handed in as a file.
    """
    with context.locks.of(_LOCK):
        at = context.clock.now()
        held = _held(context, at)
        if not context.gate.signer.can_make():
            raise KeyUnusableError(
                "the key is the file that SEATRIAL_SIGNING_KEY_FILE names: put another key into it,"
                " start the controller again, and retire the old one"
            )
        new = _made(context, held, at)
        for key in held:
            context.stores.gates.retire_key(key.id, at=at)
        return new


def retire_key(context: Context, key_id: str) -> PublicKey:
    """Retire a key now; idempotent. Raises KeyMissingError."""
    found = context.stores.gates.retire_key(key_id, at=context.clock.now())
    if found is None:
        raise KeyMissingError(f"there is no key {key_id!r}; `seatrial gate keys list` lists them")
    return found


def keyring(context: Context) -> str:
    """Return every public key with its dates, in the form of `gate verify`'s file."""
    keys = [_key_document(key) for key in context.stores.gates.signing_keys()]
    return json.dumps({"kind": KEYRING, "v": 1, "keys": keys}, indent=2) + "\n"


def _held(context: Context, at: datetime) -> list[PublicKey]:
    """Return this controller's keys, oldest first, after registering each with all controllers."""
    known = {key.id: key for key in context.stores.gates.signing_keys()}
    signer, found = context.gate.signer, []
    for key_id in signer.held():
        key = known.get(key_id)
        found.append(key or _register(context, key_id, at))
    return sorted(found, key=lambda key: (key.created_at or at, key.id))


def _made(context: Context, held: list[PublicKey], at: datetime) -> PublicKey:
    if not context.gate.signer.can_make():
        ended = ", ".join(f"{key.id} on {key.ends_at:%Y-%m-%d}" for key in held if key.ends_at)
        raise KeyUnusableError(
            f"the key that SEATRIAL_SIGNING_KEY_FILE names has ended ({ended}): put another there"
        )
    return _register(context, context.gate.signer.make(), at)


def _register(context: Context, key_id: str, at: datetime) -> PublicKey:
    public = context.gate.signer.public(key_id)
    key = PublicKey(id=key_id, public=public, created_at=at, not_after=at + LIFETIME)
    return context.stores.gates.add_key(key)


def _key_document(key: PublicKey) -> dict[str, str | None]:
    return {
        "id": key.id,
        "type": "ed25519",
        "public": key.public,
        "created": _date(key.created_at),
        "not_after": _date(key.not_after),
        "retired": _date(key.retired_at),
    }


def _date(at: datetime | None) -> str | None:
    return at.isoformat() if at else None
