"""Verifies signed verdicts from the file and the keys only, without a controller or database."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import cast

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey  # type: ignore[attr-defined]

from orchestrator.adapters.signing.envelopes import read_bundle
from orchestrator.application.ports.signer import KEYRING, NotVerifiedError, Verified
from orchestrator.domain.gate.gate_documents import (
    SIMPLE_RESULT,
    STATEMENT,
    digest_of,
    read_verdict,
)
from orchestrator.domain.gate.signing_key import PublicKey
from orchestrator.domain.gate.verdict import Verdict

Json = Mapping[str, object]


def verify_bundle(bundle: bytes, keys: bytes) -> Verified:
    """Verify every signature and every digest, and that no key had ended.

    Raises NotVerifiedError with the reason.
    """
    ring = read_keyring(keys)
    envelopes = read_bundle(bundle)
    signers = [_signer(one, number, ring) for number, one in enumerate(envelopes, 1)]
    first, *rest = (_statement(one, number) for number, one in enumerate(envelopes, 1))
    stated, verdict = _verdict(first)
    _check_statements(stated, envelopes[1:])
    for key in signers:
        _check_dates(key, verdict)
    document = cast(Json, stated["verdict"])
    return Verified(verdict=document, key=signers[0], statements=tuple(rest), remarks=ring.remarks)


def _signer(envelope: Envelope, number: int, ring: Keyring) -> PublicKey:
    (key_id,) = envelope.signatures
    key = ring.keys.get(key_id)
    if key is None:
        known = ", ".join(sorted(ring.keys)) or "none"
        raise NotVerifiedError(
            f"line {number} is signed by the key {key_id[:80]}, which is not among those given "
            f"({known}); `seatrial gate keys export` writes all that the controller knows"
        )
    public = SSlibKey(key.id, "ed25519", "ed25519", {"public": key.public})
    try:
        envelope.verify([public], 1)
    except (VerificationError, ValueError) as error:
        raise NotVerifiedError(
            f"the signature of line {number} is wrong: what it says, or the signature, was changed"
        ) from error
    return key


def _statement(envelope: Envelope, number: int) -> Json:
    try:
        said = json.loads(envelope.payload)
    except ValueError:
        said = None
    if not isinstance(said, dict) or said.get("_type") != STATEMENT:
        raise NotVerifiedError(f"line {number} is signed, and is no in-toto statement")
    return said


def _verdict(statement: Json) -> tuple[Json, Verdict]:
    """Return Seatrial's part of the first statement and the verdict in it."""
    predicate = statement.get("predicate")
    stated = predicate.get("seatrial") if isinstance(predicate, dict) else None
    if statement.get("predicateType") != SIMPLE_RESULT or not isinstance(stated, dict):
        raise NotVerifiedError("this is signed, and is no verdict: its first line states none")
    document = stated.get("verdict")
    try:
        verdict = read_verdict(cast(Json, document))
    except (ValueError, TypeError, AttributeError) as error:
        raise NotVerifiedError(f"its verdict cannot be read: {error}") from error
    if stated.get("verdictDigest") != {"sha256": digest_of(cast(Json, document))}:
        raise NotVerifiedError("the verdict does not have the digest that is stated of it")
    return stated, verdict


def _check_statements(stated: Json, rest: Sequence[Envelope]) -> None:
    """Verify that the statements of the cells are exactly those the verdict was signed with."""
    listed = stated.get("statements")
    named = listed if isinstance(listed, list) else []
    if len(named) != len(rest):
        raise NotVerifiedError(
            f"the verdict was signed with {len(named)} statements about cells, and here are "
            f"{len(rest)}"
        )
    for number, (one, envelope) in enumerate(zip(named, rest, strict=True), 2):
        found = {"sha256": hashlib.sha256(envelope.payload).hexdigest()}
        if not isinstance(one, dict) or one.get("digest") != found:
            cell = str(one.get("cell") if isinstance(one, dict) else "")[:80]
            raise NotVerifiedError(
                f"line {number} is not the statement about {cell!r} that the verdict was signed "
                "with: its digest is another"
            )


def _check_dates(key: PublicKey, verdict: Verdict) -> None:
    if key.ends_at is None or verdict.at < key.ends_at:
        return
    how = "was retired" if key.ends_at == key.retired_at else "expired"
    raise NotVerifiedError(
        f"the key {key.id} {how} on {_said(key.ends_at)}, and the verdict says it was made after "
        f"that, on {_said(verdict.at)}"
    )


def _said(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M UTC")


_PEM = b"-----BEGIN"
_NO_DATES = "the key is given without dates, so nobody checked whether it had ended"


@dataclass(frozen=True, slots=True)
class Keyring:
    """Keys by id."""

    keys: Mapping[str, PublicKey]
    remarks: tuple[str, ...] = ()
    """Checks that these keys do not allow."""


def read_keyring(keys: bytes) -> Keyring:
    """Return the keys of a file. Raises NotVerifiedError."""
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
    """Return a key. Raises ValueError if its id is not derived from its bytes."""
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
