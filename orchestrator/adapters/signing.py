"""Signing and verification of verdicts: keys, and DSSE envelopes, one per line.

The same JSON and the same base64 can be written in many ways. Only the canonical form is accepted,
so that every change of a byte of a bundle is detected.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, cast

from orchestrator.application.ports.signer import (
    KEYRING,
    KeyUnusableError,
    NotVerifiedError,
    Verified,
)
from orchestrator.domain.gate.gate_documents import (
    SIMPLE_RESULT,
    STATEMENT,
    canonical,
    digest_of,
    read_verdict,
)
from orchestrator.domain.gate.verdict import PublicKey, Verdict
from orchestrator.domain.units import plural

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from securesystemslib.dsse import Envelope
    from securesystemslib.signer import CryptoSigner  # type: ignore[attr-defined]

# securesystemslib imports the key services of every cloud, which is slow and takes memory, and
# cryptography takes 7 MB: only signing and verifying import them.
# ruff: noqa: PLC0415

PAYLOAD_TYPE = "application/vnd.in-toto+json"


def write_line(envelope: Mapping[str, object]) -> bytes:
    """Return an envelope as a line."""
    return canonical(envelope) + b"\n"


def read_bundle(bundle: bytes) -> list[Envelope]:
    """Return the envelopes of a bundle. Raises NotVerifiedError."""
    lines = bundle.split(b"\n")
    if lines.pop() or not lines:
        raise NotVerifiedError("this is no signed verdict: it must end with a whole line")
    return [_read_line(line, number) for number, line in enumerate(lines, 1)]


def _read_line(line: bytes, number: int) -> Envelope:
    from securesystemslib.dsse import Envelope

    try:
        said = json.loads(line)
        payload, kind = said["payload"], said["payloadType"]
        (signature,) = said["signatures"]
        plain = {
            "payload": _again(payload),
            "payloadType": kind,
            "signatures": [{"keyid": signature["keyid"], "sig": _again(signature["sig"])}],
        }
        is_plain = write_line(plain) == line + b"\n"
        envelope = Envelope.from_dict(plain)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        message = f"this is no signed verdict: line {number} is no DSSE envelope"
        raise NotVerifiedError(message) from error
    if not is_plain:
        raise NotVerifiedError(f"line {number} is not written as it was signed: it was changed")
    if kind != PAYLOAD_TYPE:
        raise NotVerifiedError(f"line {number} is of another kind: {str(kind)[:80]!r}")
    return envelope


def _again(text: str) -> str:
    """Decode base64 and encode it again in its canonical form."""
    try:
        return base64.b64encode(base64.b64decode(text, validate=True)).decode()
    except binascii.Error as error:
        raise ValueError(str(error)) from error


_SUFFIX = ".pem"


class DsseSigner:
    """Implements `orchestrator.application.ports.signer.Signer`.

    Args:
        folder: Folder of the keys that are created here, one file per key, named by the key's id.
        key_file: A key given by a person, which is used instead of the folder's keys.
    """

    def __init__(self, folder: Path, key_file: Path | None = None) -> None:
        self._folder = folder
        self._key_file = key_file

    def held(self) -> tuple[str, ...]:
        """Return the ids of the keys that this signer can sign with."""
        if self._key_file is not None:
            return (self._handed_in.public_key.keyid,)
        return tuple(sorted(path.stem for path in self._folder.glob(f"*{_SUFFIX}")))

    def public(self, key_id: str) -> str:
        """Return the public key, in hex."""
        return str(self._signer(key_id).public_key.keyval["public"])

    def can_make(self) -> bool:
        """Return whether keys can be created: False if a key file was given."""
        return self._key_file is None

    def make(self) -> str:
        """Create a key file that only this user can read; return the key's id.

        Raises KeyUnusableError.
        """
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
        )

        private = Ed25519PrivateKey.generate()
        key_id = str(_signer(private).public_key.keyid)
        pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        path = self._folder / f"{key_id}{_SUFFIX}"
        fresh = path.with_suffix(".new")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._folder.chmod(0o700)
            fresh.touch(mode=0o600)
            fresh.write_bytes(pem)
            fresh.replace(path)
        except OSError as error:
            message = f"no signing key can be kept in {self._folder}: {error.strerror or error}"
            raise KeyUnusableError(message) from error
        return key_id

    def sign(self, documents: Sequence[bytes], key_id: str) -> bytes:
        """Sign documents; return one DSSE envelope per line, in their order.

        Raises KeyUnusableError.
        """
        signer = self._signer(key_id)
        return b"".join(_signed(document, signer) for document in documents)

    def verify(self, bundle: bytes, keys: bytes) -> Verified:
        """Verify a bundle with a keyring or a public key."""
        from orchestrator.adapters.signing import verify_bundle

        return verify_bundle(bundle, keys)

    @cached_property
    def _handed_in(self) -> CryptoSigner:
        return _read(cast(Path, self._key_file), "SEATRIAL_SIGNING_KEY_FILE")

    def _signer(self, key_id: str) -> CryptoSigner:
        if self._key_file is not None:
            return self._handed_in
        return _read(self._folder / f"{key_id}{_SUFFIX}", "the signing key")


def _signer(private: Ed25519PrivateKey) -> CryptoSigner:
    from securesystemslib.signer import CryptoSigner  # type: ignore[attr-defined]

    return CryptoSigner(private)


def _signed(document: bytes, signer: CryptoSigner) -> bytes:
    from securesystemslib.dsse import Envelope

    envelope = Envelope(document, PAYLOAD_TYPE, {})
    envelope.sign(signer)
    return write_line(cast(Mapping[str, object], envelope.to_dict()))


def _read(path: Path, what: str) -> CryptoSigner:
    """Return the key of a PEM file. Raises KeyUnusableError, without any part of the key."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        private = load_pem_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise KeyUnusableError(f"{what} {path} cannot be read: {error.strerror}") from error
    except (ValueError, TypeError) as error:
        raise KeyUnusableError(
            f"{what} {path} is no private key without a passphrase in PEM (PKCS8); "
            "`openssl genpkey -algorithm ed25519` makes one"
        ) from error
    if not isinstance(private, Ed25519PrivateKey):
        raise KeyUnusableError(f"{what} {path} is no Ed25519 key, and only these are used")
    return _signer(private)


Json = Mapping[str, object]


def verify_bundle(bundle: bytes, keys: bytes) -> Verified:
    """Verify every signature and every digest, and that no key had ended.

    Raises NotVerifiedError with the reason.
    """
    ring = read_keyring(keys)
    envelopes = read_bundle(bundle)
    signers = [_signer_of(one, number, ring) for number, one in enumerate(envelopes, 1)]
    first, *rest = (_statement(one, number) for number, one in enumerate(envelopes, 1))
    stated, verdict = _verdict(first)
    _check_statements(stated, envelopes[1:])
    for key in signers:
        _check_dates(key, verdict)
    document = cast(Json, stated["verdict"])
    return Verified(verdict=document, key=signers[0], statements=tuple(rest), remarks=ring.remarks)


def _signer_of(envelope: Envelope, number: int, ring: Keyring) -> PublicKey:
    from securesystemslib.exceptions import VerificationError
    from securesystemslib.signer import SSlibKey  # type: ignore[attr-defined]

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
            f"the verdict was signed with {plural(len(named), 'statement')} about cells, and "
            f"here are {len(rest)}"
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
        f"the key {key.id} {how} on {_message(key.ends_at)}, and the verdict says it was made "
        "after "
        f"that, on {_message(verdict.at)}"
    )


def _message(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M UTC")


_PEM = b"-----BEGIN"
_NO_DATES = "the key is given without dates, so it is not known whether it had ended"


@dataclass(frozen=True, slots=True)
class Keyring:
    """Keys by id."""

    keys: Mapping[str, PublicKey]
    remarks: tuple[str, ...] = ()
    """Sentences about checks that are impossible with these keys."""


def read_keyring(keys: bytes) -> Keyring:
    """Return the keys of a file. Raises NotVerifiedError."""
    return _of_pem(keys) if keys.lstrip().startswith(_PEM) else _of_json(keys)


def _of_pem(keys: bytes) -> Keyring:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from securesystemslib.signer import SSlibKey  # type: ignore[attr-defined]

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
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from securesystemslib.signer import SSlibKey  # type: ignore[attr-defined]

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


def _time(text: str | None) -> datetime | None:
    at = datetime.fromisoformat(text) if text else None
    if at is not None and at.tzinfo is None:
        raise ValueError("a time without a zone")
    return at
