"""Several projects behind one port: each has a home, a database and applications of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

from starlette.types import ASGIApp

from orchestrator.adapters.files.home_folder import system_user
from orchestrator.api.app import create_app
from orchestrator.api.audit_calls import AuditCalls
from orchestrator.api.conditional_reads import ConditionalReads
from orchestrator.api.safe_methods import NoneMatchAny
from orchestrator.api.security import HostNameCheck, token_guard
from orchestrator.application.context import Context
from orchestrator.bootstrap.http_server import AsgiDispatch, ProjectDispatch
from orchestrator.cli.errors import RefusedError
from orchestrator.config import Settings, SettingsError, load, prefix_of
from orchestrator.dashboard import urls
from orchestrator.dashboard.app import create_dashboard
from orchestrator.store.database import open_database
from orchestrator.store.errors import StoreError
from orchestrator.store.sessions import Sessions

logger = logging.getLogger(__name__)


def further_projects(first: Settings) -> tuple[Settings, ...]:
    """Return the settings of the further projects. Raises RefusedError."""
    if first.is_further:
        raise RefusedError(
            "SEATRIAL_PROJECT must be the project that SEATRIAL_HOME was made for, or unset;"
            f" {first.project} is one of the further projects (SEATRIAL_PROJECTS), which `serve`"
            " serves as well"
        )
    try:
        further = tuple(load(name) for name in first.projects)
    except SettingsError as error:
        raise RefusedError(str(error)) from error
    for one in further:
        if (one.database_url is None) != (first.database_url is None):
            raise RefusedError(
                f"{prefix_of(one.project)}SEATRIAL_DATABASE_URL: the projects of one `serve` have"
                " files in their homes, or a Postgres database each"
            )
    return further


_LEFT_OUT = (
    "the project %s is not one of SEATRIAL_PROJECTS, but its database in %s %s: nobody runs its"
    " cells or releases its machines. Name it again until they are done"
)


def warn_of_left_out(first: Settings) -> None:
    """Log a warning for each project of the home with unfinished work that is not served."""
    for file in sorted((first.home / "projects").glob("*/app.db")):
        home = file.parent
        if home.name in first.projects:
            continue
        left = _left_in(f"sqlite:///{file}")
        if left:
            logger.warning(_LEFT_OUT, home.name, home, left)


def _left_in(url: str) -> str:
    """Return the unfinished work of a database, or why it is unreadable; empty if there is none."""
    try:
        database = open_database(url, read_only=True)
        try:
            runs = len(database.stores.runs.unfinished())
            leases = len(database.stores.leases.open())
        finally:
            database.close()
    except StoreError as error:
        return f"cannot be read ({error})"
    return f"has {runs} unfinished runs and {leases} open leases" if runs or leases else ""


def require_own_accounts(accounts: Sequence[str | None]) -> None:
    """Raise RefusedError if two projects run local jobs as the same user.

    With several projects, none may run them as the controller's own user either.

    Args:
        accounts: The account of each project's local jobs; None if it runs none.
    """
    named = [one for one in accounts if one is not None]
    if len(accounts) > 1 and system_user() in named:
        raise RefusedError(
            "local jobs as the controller's own user could read every project: name an account"
            " for each project that owns nothing else, or none"
        )
    if len(set(named)) < len(named):
        raise RefusedError(
            "two projects have the same account for local jobs, which could read each other's"
            " files: name another one (SEATRIAL_LOCAL_JOBS_AS of the first project, and the"
            " variable with its prefix of each further one)"
        )


def require_own_databases(databases: Sequence[Sessions]) -> None:
    """Raise RefusedError if two projects use the same database, even by different URLs."""
    for one, other in combinations(databases, 2):
        if one.shares_database(other):
            where = one.engine.url.render_as_string(hide_password=True)
            raise RefusedError(f"two projects have the same database, {where}: each needs its own")


@dataclass(frozen=True, slots=True)
class PortApplications:
    """The applications, REST and pages, of all projects of a port."""

    application: ASGIApp
    pages: ASGIApp
    """The pages of the first project, without access checks."""
    close_streams: Callable[[], None]

    @classmethod
    def from_contexts(
        cls, contexts: Sequence[Context], hosts: tuple[str, ...], ready: Callable[[], str] | None
    ) -> PortApplications:
        """Make the applications; requests without a project's mark go to the first context.

        Args:
            contexts: One for each project.
            hosts: Host names that the port accepts in addition to the loopback's.
            ready: Returns the database's schema revision, for ``/readyz``.
        """
        made = [_project(context, hosts, ready) for context in contexts]
        named = zip(contexts[1:], made[1:], strict=True)
        further = {context.sign_in.project: one.application for context, one in named}
        first = made[0]

        def close() -> None:
            for one in made:
                one.close_streams()

        whole = ProjectDispatch(first.application, further) if further else first.application
        return cls(whole, first.pages, close)


def _project(
    context: Context, hosts: tuple[str, ...], ready: Callable[[], str] | None
) -> PortApplications:
    guard = token_guard(context)
    api = create_app(context, guard=guard, allowed_hosts=hosts, revision=ready)
    shown = create_dashboard(context)
    pages = AuditCalls(
        shown, context=context, sign_in=urls.SIGNED_IN_AT_ISSUER, resources=urls.RESOURCES
    )
    kept = NoneMatchAny(ConditionalReads(pages, context=context, guard=guard))
    whole = AsgiDispatch(api, HostNameCheck(kept, allowed=hosts))
    return PortApplications(whole, shown, api.state.streams.close)
