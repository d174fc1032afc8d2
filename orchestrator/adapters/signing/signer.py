"""Signs with Ed25519: keys are PEM files, created here or given by a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, cast

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from orchestrator.application.ports.signer import KeyUnusableError, Verified

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner  # type: ignore[attr-defined]

# The library imports the key services of every cloud, which is slow: only signing imports it.
# ruff: noqa: PLC0415

_SUFFIX = ".pem"


class DsseSigner:
    """Implements the Notary.

    Args:
        folder: Folder of the keys that are created here, one file per key, named by the key's id.
        key_file: A key given by a person, which is used instead of the folder's keys.
    """

    def __init__(self, folder: Path, key_file: Path | None = None) -> None:
        self._folder = folder
        self._key_file = key_file

    def held(self) -> tuple[str, ...]:
        """Return the ids of the keys that can sign here."""
        if self._key_file is not None:
            return (self._handed_in.public_key.keyid,)
        return tuple(sorted(path.stem for path in self._folder.glob(f"*{_SUFFIX}")))

    def public(self, key_id: str) -> str:
        """Return the public key, in hex."""
        return str(self._signer(key_id).public_key.keyval["public"])

    def can_make(self) -> bool:
        """Return whether keys can be created: only without a given key."""
        return self._key_file is None

    def make(self) -> str:
        """Create a key file that only this user can read; return the key's id."""
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
        """Return one envelope per line, in the same order."""
        signer = self._signer(key_id)
        return b"".join(_signed(document, signer) for document in documents)

    def verify(self, bundle: bytes, keys: bytes) -> Verified:
        """Verify a bundle with a keyring or a public key."""
        from orchestrator.adapters.signing.verifier import verify_bundle

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

    from orchestrator.adapters.signing.envelopes import PAYLOAD_TYPE, write_line

    envelope = Envelope(document, PAYLOAD_TYPE, {})
    envelope.sign(signer)
    return write_line(cast(Mapping[str, object], envelope.to_dict()))


def _read(path: Path, what: str) -> CryptoSigner:
    """Return the key of a PEM file. Raises KeyUnusableError, without any part of the key."""
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
