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
    """Description without the password."""
    revision: str | None
    """None without a database."""
    head: str
    """Revision that this program needs."""

    @property
    def is_current(self) -> bool:
        """Whether no upgrade is needed."""
        return self.revision == self.head


@dataclass(frozen=True, slots=True)
class BackupReport:
    """What was backed up or restored."""

    file: str
    database: str
    """Description without the password."""
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
    """What was restored, and what it makes valid again."""

    audit_log: AuditVerification
    """Of the backup."""
    tokens: Sequence[Token]
    """Tokens that are valid now, those included that were revoked after the backup."""
    tokens_revoked: int
    """Number of tokens that the restore revoked."""
    schedules: Mapping[str, datetime]
    """When schedules fire next, by name; without paused ones."""


class CommandSettings(Protocol):
    """Settings of the command line."""

    @property
    def home(self) -> Path:
        """``SEATRIAL_HOME``, absolute."""
        ...

    @property
    def project(self) -> str:
        """``SEATRIAL_PROJECT``."""
        ...

    @property
    def url(self) -> str | None:
        """``SEATRIAL_URL``."""
        ...

    @property
    def token(self) -> Secret | None:
        """``SEATRIAL_TOKEN``."""
        ...

    @property
    def ci(self) -> bool:
        """Whether ``CI`` is set."""
        ...


class Wiring(Protocol):
    """Everything that commands cannot import. Members may be created lazily."""

    @property
    def settings(self) -> CommandSettings:
        """Return the settings. Raises CliError, with one sentence, for an invalid variable."""
        ...

    @property
    def clock(self) -> WallClock:
        """The clock."""
        ...

    @property
    def new_id(self) -> NewId:
        """Makes idempotency keys."""
        ...

    @property
    def documents(self) -> Documents:
        """Reads matrices and manifests."""
        ...

    @property
    def traits(self) -> Mapping[str, ProviderTraits]:
        """Every installed provider, by name."""
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
            RefusedError: Anything else that keeps it from being shipped.
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

        `until_idle` first waits for the home to be free; otherwise a held home raises
        RefusedError, with the holder's process id. `host` and `port` None means: socket only
        with `until_idle`, the default address otherwise. `local_jobs_as` names the account that
        jobs of the provider ``local`` run as, `tls_cert` and `tls_key` the files that the port
        encrypts with; None takes the environment's.
        """
        ...

    def stored_reads(self) -> httpx.BaseTransport | None:
        """Return REST for reads, answered in this process from the home's files.

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
        """Whether that controller was started by `serve`, and stays."""
        ...

    def end_when_idle(self, process: int) -> None:
        """Ask a background controller, by its process id, to end once no run is unfinished."""
        ...

    def backup(self, path: Path) -> BackupReport:
        """Copy database and blobs into a new file, also while controllers use them.

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
