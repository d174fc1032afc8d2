"""Host keys: known before the first connection, compared exactly, never learned."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass

import paramiko
from paramiko.pkey import UnknownKeyType
from paramiko.ssh_exception import SSHException

from orchestrator.domain.machine import HostKeyError

RSA_SIGNATURES = ("rsa-sha2-512", "rsa-sha2-256")
ALGORITHMS = {
    "ssh-ed25519": ("ssh-ed25519",),
    "ecdsa-sha2-nistp256": ("ecdsa-sha2-nistp256",),
    "ecdsa-sha2-nistp384": ("ecdsa-sha2-nistp384",),
    "ecdsa-sha2-nistp521": ("ecdsa-sha2-nistp521",),
    "ssh-rsa": RSA_SIGNATURES,
}
"""Key type -> the signature algorithms to offer, so that a server with keys of several types
presents the one that is pinned."""


@dataclass(frozen=True, slots=True)
class HostKey:
    """A public host key."""

    type: str
    blob: bytes

    @classmethod
    def parse(cls, text: str, *, where: str) -> HostKey:
        """Read ``type base64 [comment]`` as known_hosts has it. Raises HostKeyError."""
        words = text.split()
        try:
            key = cls(words[0], base64.b64decode(words[1], validate=True))
        except (IndexError, ValueError):
            raise HostKeyError(
                f"{where}: the pinned host key {text[:80]!r} cannot be read; "
                "write it as known_hosts has it: a type and a base64 word"
            ) from None
        key._check(where)
        return key

    def _check(self, where: str) -> None:
        if self.type not in ALGORITHMS:
            raise HostKeyError(
                f"{where}: host keys of type {self.type!r} are not supported; "
                f"pin the machine's key of one of these types: {', '.join(ALGORITHMS)}"
            )
        name = self.type.encode()
        if not self.blob.startswith(len(name).to_bytes(4, "big") + name) or not self._whole():
            raise HostKeyError(
                f"{where}: the pinned host key is damaged: it says {self.type} but holds "
                "something else; copy it again from the machine"
            )

    def _whole(self) -> bool:
        """Whether the bytes after the type are a key, every one of them."""
        try:
            read = paramiko.PKey.from_type_string(self.type, self.blob)
            return read.asbytes() == self.blob
        except (SSHException, UnknownKeyType, ValueError, IndexError, TypeError):
            return False

    @property
    def algorithms(self) -> tuple[str, ...]:
        """The signature algorithms that a server may prove this key with."""
        return ALGORITHMS[self.type]

    @property
    def fingerprint(self) -> str:
        """``SHA256:...`` exactly as ssh-keygen prints it."""
        digest = hashlib.sha256(self.blob).digest()
        return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def mismatch(where: str, *, expected: HostKey, presented: HostKey) -> HostKeyError:
    """The error for a machine that proved another key than the pinned one."""
    return HostKeyError(
        f"{where}: another machine may be answering. Expected host key {expected.type} "
        f"{expected.fingerprint}, presented {presented.type} {presented.fingerprint}. Nothing was "
        "sent to it. If the machine was reinstalled, read its key on its own console "
        "(ssh-keygen -lf /etc/ssh/ssh_host_*_key.pub) and pin that; otherwise find out who "
        "has its address"
    )
