"""What the command line is handed by the bootstrap, as small as possible."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import httpx

    from orchestrator.application.emergency_stop import EmergencyStop
    from orchestrator.application.ports.archives import PackedPayload
    from orchestrator.application.ports.clock import NewId
    from orchestrator.application.ports.documents import Documents
    from orchestrator.application.ports.signer import Verified
    from orchestrator.application.ports.wheels import Revisions, SubjectWheel
    from orchestrator.domain.cloud_account import AccountSetup
    from orchestrator.domain.commit import Commit
    from orchestrator.domain.machine import ProviderTraits
    from orchestrator.domain.matrix import Subject


class RefusedError(Exception):
    """The wiring could not do what was asked; the text is written for a person."""


@dataclass(frozen=True, slots=True)
class DatabaseState:
    """Which revision the database is at."""

    name: str
    """For a person, without a password."""
    revision: str | None
    """None where there is no database yet."""
    head: str
    """The revision that this program needs."""

    @property
    def is_current(self) -> bool:
        """Whether nothing is left to upgrade."""
        return self.revision == self.head


class Secret(Protocol):
    """A text that does not print itself."""

    def get_secret_value(self) -> str:
        """The text."""
        ...


class Settings(Protocol):
    """What the command line needs of the environment."""

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


class WallClock(Protocol):
    """The time of day, and waiting for it."""

    def now(self) -> datetime:
        """Aware, in UTC."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class Wiring(Protocol):
    """Everything that the commands cannot import themselves. Every member may be made lazily."""

    @property
    def settings(self) -> Settings:
        """Raises ValueError, with one sentence, for an unusable variable."""
        ...

    @property
    def clock(self) -> WallClock:
        """The computer's own."""
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
        """Every provider of this installation, by name."""
        ...

    @property
    def builtin_payload(self) -> Path:
        """The folder of the payload that comes with Seatrial."""
        ...

    def pack(self, source: Path, scratch: Path) -> PackedPayload:
        """Make (or take) the archive of a payload: a folder or a .tar.gz.

        Args:
            source: The folder that holds ``payload.toml``, or an archive.
            scratch: An empty folder for the archive; removed by the caller.

        Raises:
            InvalidDocumentError: ``payload.toml`` is unusable.
            RefusedError: Anything else that keeps it from being shipped.
        """
        ...

    def commit(self, source: Path | None) -> Commit:
        """What the checkout that a payload comes from, and the CI, say is tested.

        Args:
            source: The payload's folder, or its archive; None for the built-in one.
        """
        ...

    def pack_artifacts(self, source: Path, scratch: Path) -> Path:
        """Make the archive of a folder of results; a file or an archive stays where it is.

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
        """What sets up and checks the user's account of a cloud. Raises ProviderError."""
        ...

    def emergency_stop(self) -> EmergencyStop:
        """What ends every machine of the project without a controller or a database."""
        ...

    def verify(self, bundle: bytes, keys: bytes) -> Verified:
        """Check a signed verdict with a keyring or a public key, and nothing else.

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
        """Be the controller of the home until told to stop; return the exit code.

        `until_idle` first waits for the home to be free; otherwise a held home raises
        RefusedError, with the holder's process id. `host` and `port` None means: socket only
        with `until_idle`, the default address otherwise. `local_jobs_as` names the account that
        jobs of the provider ``local`` run as, `tls_cert` and `tls_key` the files that the port
        encrypts with; None takes the environment's.
        """
        ...

    def stored_reads(self) -> httpx.BaseTransport | None:
        """REST for reading, answered in this process from the files of the home.

        None where there is no database yet. Raises RefusedError for tables of another version.
        """
        ...

    @property
    def is_embedded(self) -> bool:
        """Whether the database is a file of the home."""
        ...

    def holder(self) -> int | None:
        """Process id of the controller that holds the home, or None."""
        ...

    def is_served(self) -> bool:
        """Whether that controller stays: somebody started it with `serve`."""
        ...

    def database(self, *, upgrade: bool) -> DatabaseState:
        """Say where the database is, after bringing it to the head if asked.

        Raises RefusedError where it cannot be reached. Creates nothing unless `upgrade`.
        """
        ...
