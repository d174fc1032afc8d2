"""Wiring of the command line; each component is created when it is first needed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.adapters.clock import SystemClock, new_id
from orchestrator.assets import asset_dir
from orchestrator.bootstrap import uncollected

if TYPE_CHECKING:
    import httpx

    from orchestrator.application.emergency_stop import EmergencyStop
    from orchestrator.application.ports.archives import PackedPayload
    from orchestrator.application.ports.clock import NewId
    from orchestrator.application.ports.documents import Documents
    from orchestrator.application.ports.signer import Verified
    from orchestrator.application.ports.wheels import Revisions, SubjectWheel
    from orchestrator.cli.wiring import BackupReport, DatabaseState, RestoreReport
    from orchestrator.config import Settings
    from orchestrator.domain.cloud_account import AccountSetup
    from orchestrator.domain.commit import Commit
    from orchestrator.domain.machine import ProviderTraits
    from orchestrator.domain.matrix import Subject

# The command line starts in a fraction of a second because nothing below is imported before a
# command needs it.
# ruff: noqa: PLC0415


class CommandWiring:
    """Implements `orchestrator.cli.wiring.Wiring`."""

    @cached_property
    def settings(self) -> Settings:
        """Return the settings. Raises CliError, with one sentence, for an invalid variable."""
        from orchestrator.cli.errors import CliError
        from orchestrator.config import SettingsError, load

        try:
            return load()
        except SettingsError as error:
            raise CliError(str(error)) from error

    @cached_property
    def clock(self) -> SystemClock:
        """Return the clock."""
        return SystemClock()

    @cached_property
    def new_id(self) -> NewId:
        """Return the function that makes idempotency keys."""
        return new_id

    @cached_property
    def documents(self) -> Documents:
        """Return the parsers of matrices and manifests."""
        from orchestrator.adapters.files.documents import FileDocuments

        return FileDocuments()

    @cached_property
    def traits(self) -> Mapping[str, ProviderTraits]:
        """Return the traits of every installed provider, by name."""
        from runners import registry

        return {name: registry.traits(name) for name in registry.names()}

    @property
    def builtin_payload(self) -> Path:
        """Return the folder of the built-in payload."""
        return asset_dir("payload")

    def pack(
        self, source: Path, scratch: Path, *, manifest_from: Path | None = None
    ) -> PackedPayload:
        """Pack a payload folder, or return a ready .tar.gz. Raises RefusedError."""
        from orchestrator.adapters.files.archive import FilePayloadArchives
        from orchestrator.application.ports.archives import ArchiveError
        from orchestrator.cli.errors import RefusedError

        try:
            packed = FilePayloadArchives(self.documents).pack(
                source, into=scratch, manifest_from=manifest_from
            )
        except ArchiveError as error:
            raise RefusedError(str(error)) from error
        return packed

    def commit(self, source: Path | None) -> Commit:
        """Return the tested commit, from the payload's checkout or the CI's variables."""
        from orchestrator.adapters.files.git_work_tree import checkout_of
        from orchestrator.config import ci_commit
        from orchestrator.domain.commit import Commit, completed

        return completed(checkout_of(source) if source is not None else Commit(), ci_commit())

    def pack_artifacts(self, source: Path, scratch: Path) -> Path:
        """Pack a folder of results; a file or an archive is left in place. Raises RefusedError."""
        from orchestrator.adapters.files.ingest_upload import pack_artifacts
        from orchestrator.application.ports.archives import ArchiveError
        from orchestrator.cli.errors import RefusedError

        try:
            return pack_artifacts(source, scratch)
        except ArchiveError as error:
            raise RefusedError(str(error)) from error

    def subject(self, subject: Subject, *, base: Path, scratch: Path) -> SubjectWheel | None:
        """Find the subject's wheel below `base`, or build its revision in `scratch`.

        Raises RefusedError.
        """
        from orchestrator.adapters.files.subject_wheel import FileSubjects
        from orchestrator.application.ports.wheels import WheelsError
        from orchestrator.cli.errors import RefusedError

        try:
            return FileSubjects().prepare(subject, base=base, into=scratch)
        except WheelsError as error:
            raise RefusedError(str(error)) from error

    def revisions(self, url: str, scratch: Path) -> Revisions:
        """Clone a repository into an empty folder. Raises WheelsError."""
        from orchestrator.adapters.files.subject_wheel import GitRevisions

        return GitRevisions(url, scratch)

    def account_setup(self, cloud: str) -> AccountSetup:
        """Return the set-up of a cloud account. Raises ProviderError."""
        from runners import registry

        return registry.account_setup(cloud, self.settings.for_providers(), asset_dir("templates"))

    def emergency_stop(self) -> EmergencyStop:
        """Return the emergency stop, which needs no controller or database."""
        from orchestrator.bootstrap.controller_wiring import emergency_stop

        return emergency_stop(self.settings)

    def verify(self, bundle: bytes, keys: bytes) -> Verified:
        """Verify a signed verdict with a keyring or a public key, offline."""
        from orchestrator.adapters.signing import verify_bundle

        return verify_bundle(bundle, keys)

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
        """Run the controller of the home until it is stopped; return the exit code."""
        with uncollected():
            from orchestrator.bootstrap.controller_process import ServeOptions, control

        options = ServeOptions(
            until_idle=until_idle,
            host=host,
            port=port,
            cells=cells,
            local_jobs_as=local_jobs_as,
            tls_cert=tls_cert,
            tls_key=tls_key,
        )
        return control(self.settings, options)

    def stored_reads(self) -> httpx.BaseTransport | None:
        """Return a transport that answers REST reads from the home's files; None if it cannot."""
        if not (self.settings.home / "app.db").is_file():
            return None
        with uncollected():
            from orchestrator.bootstrap.offline_reads import StoredReads

        return StoredReads(self.settings)

    @property
    def is_embedded(self) -> bool:
        """Whether the database is a file of the home."""
        return self.settings.database_url is None

    def holder(self) -> int | None:
        """Return the process id of the controller that holds the home; None without one."""
        from orchestrator.adapters.files.home_folder import holder

        found = holder(self.settings.home)
        return found.pid if found else None

    def is_served(self) -> bool:
        """Whether the home's controller was started by `serve` and does not end when idle."""
        from orchestrator.adapters.files.home_folder import holder

        found = holder(self.settings.home)
        return found is not None and found.role == "serve"

    def end_when_idle(self, process: int) -> None:
        """Ask a background controller, by its process id, to end once no run is unfinished."""
        from orchestrator.controller import HURRY

        with suppress(ProcessLookupError, PermissionError):
            os.kill(process, HURRY)

    def backup(self, path: Path) -> BackupReport:
        """Copy database and blobs into a new file, also while controllers use them."""
        from orchestrator.bootstrap.backup import backup

        return backup(self.settings, path)

    def restore(
        self, path: Path, *, revoke_tokens: bool, accept_broken_chain: bool
    ) -> RestoreReport:
        """Fill an empty home and database from a backup."""
        from orchestrator.bootstrap.backup import restore

        return restore(
            self.settings,
            path,
            revoke_tokens=revoke_tokens,
            accept_broken_chain=accept_broken_chain,
        )

    def database(self, *, upgrade: bool) -> DatabaseState:
        """Return the database's state, after an upgrade if requested. Raises RefusedError."""
        from orchestrator.adapters.files.home_folder import HomeUnusableError, prepare_home
        from orchestrator.bootstrap.controller_wiring import app_url, is_embedded, shown_url
        from orchestrator.cli.errors import RefusedError
        from orchestrator.cli.wiring import DatabaseState
        from orchestrator.store.database import open_database, revisions_of
        from orchestrator.store.errors import DatabaseOutdatedError, StoreError

        url = app_url(self.settings)
        try:
            missing = is_embedded(self.settings) and not (self.settings.home / "app.db").exists()
            if upgrade:
                if self.holder() is not None:
                    message = f"process {self.holder()} holds {self.settings.home}; stop it first"
                    raise RefusedError(message)
                prepare_home(self.settings.home)
                open_database(url, migrate=True).close()
            found = None if missing and not upgrade else revisions_of(url)
            if found is not None and not found.is_current:
                with suppress(DatabaseOutdatedError):
                    open_database(url, read_only=True).close()
        except (StoreError, HomeUnusableError) as error:
            raise RefusedError(str(error)) from error
        except OSError as error:
            message = f"SEATRIAL_HOME {self.settings.home} cannot be used: {error.strerror}"
            raise RefusedError(message) from error
        if found is None:
            return DatabaseState(shown_url(url), None, "")
        return DatabaseState(shown_url(url), found.current, found.head)
