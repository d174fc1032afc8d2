"""Protocol of the wiring that bootstrap passes to the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from orchestrator.domain.audit import AuditVerification
from orchestrator.domain.caller_identity import Token

if TYPE_CHECKING:
    import httpx

    from orchestrator.application.emergency_stop import EmergencyStop
    from orchestrator.application.ports.archives import PackedPayload
    from orchestrator.application.ports.clock import NewId
    from orchestrator.application.ports.documents import Documents
    from orchestrator.application.ports.signer import Verified
    from orchestrator.application.ports.wheels import Revisions, SubjectWheel
    from orchestrator.client.connection import Secret
    from orchestrator.client.transport import WallClock
    from orchestrator.domain.cloud_account import AccountSetup
    from orchestrator.domain.commit import Commit
    from orchestrator.domain.machine import ProviderTraits
    from orchestrator.domain.matrix import Subject


@dataclass(frozen=True, slots=True)
class DatabaseState:
    """Revision of a database."""

    name: str
    """Place of the database, without the password."""
    revision: str | None
    """Revision of the schema; None without a database."""
    head: str
    """Revision that this program needs."""

    @property
    def is_current(self) -> bool:
        """Whether no upgrade is needed."""
        return self.revision == self.head


@dataclass(frozen=True, slots=True)
class BackupReport:
    """Facts of a backup that was written or restored."""

    file: str
    database: str
    """Place of the database, without the password."""
    at: str
    """When the backup was made."""
    blobs: int
    """Number of blobs."""
    blobs_missing: int
    """Number of payloads, artifacts and evidence of verdicts that its rows name, and that were gone
    when the backup was made."""
    size_bytes: int
    """Size of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreReport(BackupReport):
    """Facts of a restore, with the tokens and schedules that are valid after it."""

    audit_log: AuditVerification
    """Result of verifying the audit log of the backup."""
    tokens: Sequence[Token]
    """Tokens that are valid now, including those that were revoked after the backup."""
    tokens_revoked: int
    """Number of tokens that the restore revoked."""
    schedules: Mapping[str, datetime]
    """Next firing times by name, without paused schedules."""


class CommandSettings(Protocol):
    """Settings of the command line."""

    @property
    def home(self) -> Path:
        """The home folder from ``SEATRIAL_HOME``, as an absolute path."""
        ...

    @property
    def project(self) -> str:
        """The project's name from ``SEATRIAL_PROJECT``."""
        ...

    @property
    def url(self) -> str | None:
        """URL of a remote controller from ``SEATRIAL_URL``; None without one."""
        ...

    @property
    def token(self) -> Secret | None:
        """API token from ``SEATRIAL_TOKEN``; None without one."""
        ...

    @property
    def ci(self) -> bool:
        """Whether ``CI`` is set."""
        ...


class Wiring(Protocol):
    """Services that commands cannot import; bootstrap passes them in, and may create them late."""

    @property
    def settings(self) -> CommandSettings:
        """Settings of the command line.

        Raises CliError with one sentence for an invalid variable.
        """
        ...

    @property
    def clock(self) -> WallClock:
        """The clock of commands that wait."""
        ...

    @property
    def new_id(self) -> NewId:
        """Generates ids, which are used as idempotency keys."""
        ...

    @property
    def documents(self) -> Documents:
        """Reads matrices and manifests."""
        ...

    @property
    def traits(self) -> Mapping[str, ProviderTraits]:
        """Traits of every installed provider, by name."""
        ...

    @property
    def builtin_payload(self) -> Path:
        """Folder of the built-in payload."""
        ...

    def pack(
        self, source: Path, scratch: Path, *, manifest_from: Path | None = None
    ) -> PackedPayload:
        """Pack a payload folder, or return a ready .tar.gz.

        Args:
            source: The folder that holds ``payload.toml``, or an archive.
            scratch: An empty folder for the archive; removed by the caller.
            manifest_from: The folder whose ``payload.toml`` is packed in place of the source's.

        Raises:
            InvalidDocumentError: ``payload.toml`` is unusable.
            RefusedError: The folder cannot be shipped for another reason.
        """
        ...

    def commit(self, source: Path | None) -> Commit:
        """Return the tested commit, from the payload's checkout or the CI's variables.

        Args:
            source: The payload's folder, or its archive; None for the built-in one.
        """
        ...

    def pack_artifacts(self, source: Path, scratch: Path) -> Path:
        """Pack a folder of results; a file or an archive is left in place.

        Raises RefusedError.
        """
        ...

    def subject(self, subject: Subject, *, base: Path, scratch: Path) -> SubjectWheel | None:
        """Find the subject's wheel below `base`, or build its revision in `scratch`.

        None for a package or the payload itself. Raises RefusedError.
        """
        ...

    def revisions(self, url: str, scratch: Path) -> Revisions:
        """Clone a repository into an empty folder. Raises WheelsError."""
        ...

    def account_setup(self, cloud: str) -> AccountSetup:
        """Return the set-up of a cloud account. Raises ProviderError."""
        ...

    def emergency_stop(self) -> EmergencyStop:
        """Return the emergency stop, which needs no controller or database."""
        ...

    def verify(self, bundle: bytes, keys: bytes) -> Verified:
        """Verify a signed verdict with a keyring or a public key, offline.

        Raises NotVerifiedError.
        """
        ...

    def control(
        self,
        *,
        until_idle: bool,
        host: str | None,
        port: int | None,
        cells: bool,
        local_jobs_as: str | None,
        tls_cert: Path | None = None,
        tls_key: Path | None = None,
    ) -> int:
        """Run the controller of the home until it is stopped; return the exit code.

        With `until_idle` it first waits for the home to be free, and ends when no run is
        unfinished; otherwise a held home raises RefusedError with the holder's process id. Without
        `host` and `port` it listens on the default address, or only on the socket with
        `until_idle`. `local_jobs_as` names the account for jobs of the provider ``local``,
        `tls_cert` and `tls_key` are the files for encryption; None takes the environment's value.
        """
        ...

    def stored_reads(self) -> httpx.BaseTransport | None:
        """Return a transport that answers REST reads in this process from the home's files.

        None without a database. Raises RefusedError for tables of another version.
        """
        ...

    @property
    def is_embedded(self) -> bool:
        """Whether the database is a file of the home."""
        ...

    def holder(self) -> int | None:
        """Return the process id of the controller that holds the home, or None."""
        ...

    def is_served(self) -> bool:
        """Return whether the holder was started by `serve`, so that it does not end when idle."""
        ...

    def end_when_idle(self, process: int) -> None:
        """Ask a background controller, by its process id, to end once no run is unfinished."""
        ...

    def backup(self, path: Path) -> BackupReport:
        """Copy database and blobs into a new file; controllers may run meanwhile.

        Raises RefusedError.
        """
        ...

    def restore(
        self, path: Path, *, revoke_tokens: bool, accept_broken_chain: bool
    ) -> RestoreReport:
        """Fill an empty home and database from a backup. Raises RefusedError."""
        ...

    def database(self, *, upgrade: bool) -> DatabaseState:
        """Return the database's state, after an upgrade if requested.

        Raises RefusedError if it cannot be reached. Creates nothing unless `upgrade`.
        """
        ...
