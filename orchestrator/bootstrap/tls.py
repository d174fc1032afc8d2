"""TLS of the port: a certificate and its key, read again when their files change."""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.cli.errors import RefusedError

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class TlsFiles:
    """The certificate of a port, with its chain, and its private key.

    Raises RefusedError, when it is made, for files that cannot be used.
    """

    certificate: Path
    key: Path | None
    """None if the certificate's file holds it too."""
    context: ssl.SSLContext = field(init=False)
    """TLS 1.2 and newer. It is the same object after a renewal: new connections use the new."""
    _seen: tuple[tuple[int, int], ...] = field(init=False)

    def __post_init__(self) -> None:
        """Read both files."""
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            self._seen = self._stamps()
            self._load(self.context)
        except OSError as error:  # SSLError is one
            raise RefusedError(self._refusal(error)) from error

    def renew(self) -> None:
        """Use the files as they are now, if they changed; unusable ones change nothing."""
        try:
            stamps = self._stamps()
            if stamps == self._seen:
                return
            self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))  # a failure leaves half of a pair
            self._load(self.context)
        except OSError as error:
            logger.warning("%s; the earlier certificate stays in use", self._refusal(error))
            return
        self._seen = stamps
        logger.info("the certificate %s is in use from now on", self.certificate)

    def _files(self) -> tuple[Path, ...]:
        return (self.certificate, self.key) if self.key else (self.certificate,)

    def _stamps(self) -> tuple[tuple[int, int], ...]:
        return tuple((stat.st_mtime_ns, stat.st_ino) for stat in map(Path.stat, self._files()))

    def _load(self, context: ssl.SSLContext) -> None:
        context.load_cert_chain(self.certificate, self.key, password=_no_password)

    def _refusal(self, error: OSError) -> str:
        names = " and ".join(str(file) for file in self._files())
        if isinstance(error, _EncryptedKeyError):
            return f"TLS: {names}: {error}"
        reason = getattr(error, "reason", None)
        if reason == "KEY_VALUES_MISMATCH":
            return f"TLS: {names} do not belong together: the key is another certificate's"
        if isinstance(error, ssl.SSLError):
            return f"TLS: {names} must be PEM files of a certificate and its private key ({error})"
        return f"TLS: {error.filename or names} cannot be read: {error.strerror or error}"


class _EncryptedKeyError(OSError):
    """The key has a password, and the server has no terminal to ask for it."""


def _no_password() -> str:
    raise _EncryptedKeyError(
        "the private key has a password: write it without one (openssl pkey -in KEY -out NEW) and"
        " readable by the controller's user only"
    )
