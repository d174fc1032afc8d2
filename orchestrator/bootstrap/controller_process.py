"""The process of a controller: holds the home, and serves."""

from __future__ import annotations

import gc
import itertools
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from shlex import quote
from socket import socket
from typing import Any, cast

from starlette.types import ASGIApp
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from orchestrator.adapters.clock import SystemClock
from orchestrator.adapters.files.home_folder import (
    PID,
    HomeHeldError,
    HomeLock,
    HomeUnusableError,
    prepare_home,
    system_user,
)
from orchestrator.adapters.step_log import StepFormatter
from orchestrator.api.app import create_app
from orchestrator.api.request_limits import RequestLimits
from orchestrator.application.channels import deliver
from orchestrator.application.context import Context
from orchestrator.application.credentials import LINK_LIFE, SignInLink, project_of
from orchestrator.application.finish_ingestion import resume_ingestions
from orchestrator.application.fire_schedules import fire
from orchestrator.application.ports.signer import KeyUnusableError
from orchestrator.application.prune import prune_when_due
from orchestrator.application.tokens import keep_token, launches_beside, new_secret
from orchestrator.bootstrap.controller_wiring import Parts, build, is_embedded
from orchestrator.bootstrap.http_server import (
    HttpLimits,
    HttpServer,
    TlsFiles,
    home_socket,
    port_sockets,
    refused,
)
from orchestrator.bootstrap.local_job_policy import LocalJobs, jobs_as, jobs_as_ourselves, not_here
from orchestrator.bootstrap.projects import (
    PortApplications,
    further_projects,
    require_own_accounts,
    require_own_databases,
    warn_of_left_out,
)
from orchestrator.bootstrap.sign_in import public_host, sign_in_ports
from orchestrator.cli.errors import RefusedError
from orchestrator.config import Settings, SettingsError, read_setting
from orchestrator.controller import HURRY, Controller, Listener, end_process
from orchestrator.dashboard import urls
from orchestrator.domain.caller_identity import SOCKET, Person, Scope
from orchestrator.domain.loopback import is_loopback
from orchestrator.store.audit_recorder import Call, recording
from orchestrator.store.errors import StoreError
from runners.shell.local_account import AccountError

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8470
_WAIT_FOR_HOME_S = 20
_BACKGROUND, _SERVE = "controller", "serve"
"""Roles of a home's holder."""
_WAITING = (
    "{} is held by process {}, a background controller: waiting until its runs are finished"
    " (Ctrl-C ends the wait; `seatrial cancel RUN` a run)"
)
_LOCAL_IS_REFUSED = (
    "meanwhile no run of `provider: local` begins in this home: end this with Ctrl-C before the"
    " next one, or name an account for its jobs (`serve --local-jobs-as`)"
)
_LOCAL_AS_OURSELVES = (
    "jobs of `provider: local` run as your own user: whoever gets a token with the scope run can"
    " read what you can"
)
_NOT_ALONE = (
    "--local-jobs-as {}: jobs would run as the controller's own user, and others have tokens with"
    " which they can launch: {}. Revoke them (`seatrial token list`, `seatrial token revoke`), or"
    " name an account that owns nothing else"
)
_NO_ACCOUNT = (
    "--local-jobs-as names no account: is a variable unset? Your own user is"
    ' `--local-jobs-as "$(id -un)"`'
)
_NOT_OF_PROJECT = (
    "the first token of the project {} must be `seatrial_{}` and 43 random letters, digits, '-' and"
    " '_', so that it is known whose it is"
)
SOCKET_FILE = "controller.sock"
_FIRING_THREADS = 4
"""Maximum subjects of schedules that are built concurrently."""


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """The options of `seatrial serve`."""

    until_idle: bool
    host: str | None
    port: int | None
    cells: bool
    local_jobs_as: str | None = None
    """Account of jobs of the provider ``local``; None uses the settings."""
    tls_cert: Path | None = None
    """The certificate of the port, with its chain; None leaves it to the settings."""
    tls_key: Path | None = None
    """The certificate's private key, if it is in another file."""

    @property
    def listens(self) -> bool:
        """Whether it listens on a TCP port in addition to the socket."""
        return not self.until_idle or self.port is not None

    @property
    def address(self) -> str:
        """Return the host to listen on."""
        return self.host or DEFAULT_HOST

    @property
    def number(self) -> int:
        """Return the port number."""
        return self.port or DEFAULT_PORT


def control(settings: Settings, options: ServeOptions) -> int:
    """Hold the home and serve until stopped; ends the process."""
    _begin_to_log()
    # Only the owner can access a controller's files; jobs keep the user's own umask.
    umask = os.umask(0o077)
    try:
        return _serve(settings, options, umask)
    finally:
        os.umask(umask)


def _serve(settings: Settings, options: ServeOptions, umask: int) -> int:
    further = further_projects(settings) if options.listens else ()
    if options.listens:
        warn_of_left_out(settings)
    projects = (settings, *further)
    for project in projects:
        _hold(project, options)
    tls = _tls(settings, options) if options.listens else None
    ports = port_sockets(options.address, options.number) if options.listens else []
    require_own_accounts(
        [options.local_jobs_as or settings.local_jobs_as, *(one.local_jobs_as for one in further)]
    )
    built = [_build(settings, options, umask, projects)]
    alone = replace(options, local_jobs_as=None)
    built += [_build(one, alone, umask, projects, first=built[0][1]) for one in further]
    require_own_databases([parts.database.sessions for _, parts in built])
    served = [_open(one, options, *parts) for one, parts in zip(projects, built, strict=True)]
    first = served[0]
    said = ""
    if ports:
        link = SignInLink.to(first.secret, at=first.parts.context.clock.now())
        first.know(link)
        listener, said = _port(options, served, ports, link.secret, tls)
        first.listeners.append(listener)

    def ready() -> None:
        freeze_start_up_objects()
        if said:
            print(said, file=sys.stderr, flush=True)  # noqa: T201

    controllers = [_controller(one, options, ready) for one in served]
    controllers[0].further = controllers[1:]
    controllers[0].listeners += [one for beside in served[1:] for one in beside.listeners]
    controllers[0].run()
    for one in served:
        for left in (one.settings.home / SOCKET_FILE, one.settings.home / PID):
            left.unlink(missing_ok=True)
    end_process(0)
    return 0


@dataclass(slots=True)
class _Served:
    """A project that this process serves."""

    settings: Settings
    local: LocalJobs
    parts: Parts
    secret: str
    """The secret of the operator's token; empty without one."""
    listeners: list[Listener]

    def know(self, link: SignInLink) -> None:
        """Accept the link for one sign-in of a browser."""
        sign_in = replace(self.parts.context.sign_in, link=link)
        self.parts = replace(self.parts, context=replace(self.parts.context, sign_in=sign_in))


def _build(
    settings: Settings,
    options: ServeOptions,
    umask: int,
    served: Sequence[Settings],
    first: Parts | None = None,
) -> tuple[LocalJobs, Parts]:
    """Build a project's components: open its database, and create or upgrade its tables.

    No rows are written. Raises RefusedError.
    """
    local = replace(_local_jobs(settings, options, served), umask=umask)
    sign_in = sign_in_ports(settings) if options.listens else None
    try:
        parts = build(settings, runs_cells=options.cells, local=local, sign_in=sign_in, first=first)
    except StoreError as error:
        raise RefusedError(str(error)) from error
    _require_signing_key(settings, parts.context)
    return local, parts


def _open(settings: Settings, options: ServeOptions, local: LocalJobs, parts: Parts) -> _Served:
    """Store a project's first token, and listen on its home's socket. Raises RefusedError."""
    own = home_socket(settings.home / SOCKET_FILE)
    operator, secret = _operator(settings, options, parts.context)
    _require_alone(local, parts.context, operator)
    if local.as_ourselves:
        parts = replace(parts, context=replace(parts.context, sole_launcher=operator))
    near = create_app(parts.context, guard=None, revision=parts.database.ready, operator=operator)
    listener = Listener(near, own, near.state.streams.close, HttpServer)
    return _Served(settings, local, parts, secret, [listener])


def _begin_to_log() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(StepFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for noisy in (
        "boto3",
        "botocore",
        "google",
        "grpc",
        "urllib3",
        "paramiko",
        "alembic",
        "httpx",
        "httpx2",
        "dbos",
    ):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def _controller(served: _Served, options: ServeOptions, ready: Callable[[], None]) -> Controller:
    parts = served.parts
    return Controller(
        identity=parts.identity,
        stores=parts.database.stores,
        clock=parts.context.clock,
        listeners=served.listeners,
        cells=parts.engine,
        until_idle=options.until_idle,
        ready=ready,
        leave=partial(parts.context.janitor.sweep, known_only=True, is_leaving=True),
        sweep=partial(parts.context.janitor.sweep, known_only=options.until_idle),
        resume=partial(resume_ingestions, parts.context),
        fire=partial(fire, parts.context, begin=WorkerThreads(_FIRING_THREADS, "firing").begin),
        deliver=partial(deliver, parts.context),
        prune=partial(prune_when_due, parts.context),
        shared=not is_embedded(served.settings),
    )


def _hold(settings: Settings, options: ServeOptions) -> HomeLock:
    """Acquire the home.

    A background controller waits for a controller that is ending. `serve` waits until a background
    controller has finished its runs. Raises RefusedError.
    """
    if options.until_idle:
        # A successor repeats its signal, because it may come before the controller handles signals.
        # The signal is not ignored until then, because jobs would inherit that.
        signal.signal(HURRY, lambda *_: None)
    clock = SystemClock()
    try:
        prepare_home(settings.home)
    except HomeUnusableError as error:
        raise RefusedError(str(error)) from error
    lock = HomeLock(settings.home, clock=clock, sleep=clock.sleep)
    waited_for = 0
    for left in itertools.count(_WAIT_FOR_HOME_S, -1):
        try:
            return lock.acquire(_BACKGROUND if options.until_idle else _SERVE)
        except HomeHeldError as error:
            keeper = error.holder
            is_brief = options.until_idle or keeper is None
            if is_brief and left > 1:
                continue
            if is_brief or keeper is None or keeper.role != _BACKGROUND:
                raise RefusedError(str(error)) from error
        if keeper.pid != waited_for:
            waited_for = keeper.pid
            said = _WAITING.format(settings.home, keeper.pid)
            print(said, file=sys.stderr, flush=True)  # noqa: T201
        with suppress(ProcessLookupError, PermissionError):
            os.kill(keeper.pid, HURRY)
    raise AssertionError("unreachable")


def _local_jobs(
    settings: Settings, options: ServeOptions, served: Sequence[Settings] = ()
) -> LocalJobs:
    """Return the account of local jobs, apart from all `served` projects. Raises RefusedError.

    Other people reach a controller by its port, or through a shared database.
    """
    if options.local_jobs_as is not None and not options.local_jobs_as.strip():
        raise RefusedError(_NO_ACCOUNT)
    account, own = options.local_jobs_as or settings.local_jobs_as, system_user()
    far = "with a database that controllers share" if not is_embedded(settings) else ""
    if settings.public_url:
        far = f"behind SEATRIAL_PUBLIC_URL={settings.public_url}"
    if settings.oidc_issuer is not None:
        far = "where people sign in at an issuer"
    if options.listens and not is_loopback(options.address):
        far = f"on the address {options.address}"
    reached = options.listens or bool(far)
    if account is None:
        refusal = not_here(own, is_near=not far) if reached else ""
        return LocalJobs(refusal=refusal, reached=reached)
    try:
        if account == own:
            return jobs_as_ourselves(own, far=far)
        return jobs_as(account, served or (settings,), reached=reached)
    except AccountError as error:
        raise RefusedError(f"--local-jobs-as {account}: {error}") from error


def _require_signing_key(settings: Settings, context: Context) -> None:
    """Check that the key of SEATRIAL_SIGNING_KEY_FILE can sign. Raises RefusedError."""
    if settings.signing_key_file is None:
        return
    try:
        context.gate.signer.held()
    except KeyUnusableError as error:
        raise RefusedError(str(error)) from error


def _require_alone(local: LocalJobs, context: Context, operator: str) -> None:
    """Raise RefusedError if jobs run as the controller's own user and others can launch runs."""
    if not local.as_ourselves:
        return
    now = context.clock.now()
    others = sorted(
        token.name
        for token in context.stores.tokens.list()
        if token.is_valid(now) and launches_beside(operator, token.name, token.scope)
    )
    if others:
        raise RefusedError(_NOT_ALONE.format(system_user(), ", ".join(others)))


def _operator(settings: Settings, options: ServeOptions, context: Context) -> tuple[str, str]:
    """Return the name of callers on the home's socket, and their token's secret or "".

    Anyone who may use the socket can read the first token, so both have the same name.
    """
    has_token = settings.admin_token_file is not None or (settings.home / "token").exists()
    if not (options.listens or has_token):
        return system_user(), ""
    secret, me = _first_secret(settings), system_user()
    if settings.projects and project_of(secret) != settings.mark.rstrip("."):
        raise RefusedError(_NOT_OF_PROJECT.format(settings.project, settings.mark))
    call = Call(
        operation=lambda: _SERVE,
        at=context.clock.now(),
        project=settings.project,
        caller=Person(me, SOCKET),
    )
    with recording(call):
        return keep_token(context, me, Scope.ADMIN, secret, days=None).name, secret


def _port(
    options: ServeOptions,
    served: Sequence[_Served],
    sockets: list[socket],
    link: str,
    tls: TlsFiles | None,
) -> tuple[Listener, str]:
    """Return the TCP listener, and a message for the terminal; `link` is a sign-in secret."""
    first, *further = served
    settings, host, port = first.settings, options.address, options.number
    hosts = (host, *settings.public_hosts, *public_host(settings))
    whole = PortApplications.from_contexts(
        [one.parts.context for one in served], hosts, _ready(served)
    )
    forwarded = _limited(settings, whole.application, whole.pages, first.parts.context.clock.now)
    name = f"[{host}]" if ":" in host else host
    url = f"{'https' if tls else 'http'}://{name}:{port}"
    lines = [f"Seatrial answers at {url}", *_ways_in(settings, url, link)]
    lines += [f"  {_LOCAL_IS_REFUSED if first.local.refusal else _LOCAL_AS_OURSELVES}"] * (
        not first.local.account
    )
    lines += [
        f"  project {one.settings.project}: its home is {one.settings.home}" for one in further
    ]
    limits = HttpLimits(
        headers_s=settings.http_headers_s,
        pause_s=settings.http_pause_s,
        connections=settings.http_connections,
    )
    server = partial(HttpServer, limits=limits, tls=tls.context if tls else None)
    renew = tls.renew if tls else None
    return Listener(forwarded, sockets, whole.close_streams, server, renew), "\n".join(lines)


def _ready(served: Sequence[_Served]) -> Callable[[], str]:
    """Return a function that checks all databases, and returns the revision of the first one."""

    def ready() -> str:
        for one in reversed(served):
            revision = one.parts.database.ready()
        return revision

    return ready


def _limited(
    settings: Settings, whole: ASGIApp, shown: ASGIApp, now: Callable[[], datetime]
) -> ASGIApp:
    """Return the application with request limits, by the address that trusted proxies report."""
    limited = RequestLimits(
        whole,
        now=now,
        requests=settings.http_requests_a_minute,
        guesses=settings.http_guesses_a_minute,
        refuse=partial(refused, shown),
    )
    proxied = ProxyHeadersMiddleware(cast(Any, limited), list(settings.trusted_proxies))
    return cast(ASGIApp, proxied)


def _tls(settings: Settings, options: ServeOptions) -> TlsFiles | None:
    """Return the certificate and key of the port; None for plain HTTP. Raises RefusedError."""
    certificate = options.tls_cert or settings.tls_cert
    key = options.tls_key or settings.tls_key
    if certificate is None:
        if key is not None:
            raise RefusedError(f"{key} is a key without a certificate: name it with --tls-cert")
        return None
    return TlsFiles(certificate, key)


def _ways_in(settings: Settings, url: str, link: str) -> tuple[str, ...]:
    """Return the lines that say how to sign in; they contain no token."""
    if settings.oidc_issuer is not None:
        ways = _with_token(settings, url, link)
        return (f"  people sign in at {settings.public_url}{urls.SIGN_IN}", *ways)
    return _with_token(settings, url, link)


def _with_token(settings: Settings, url: str, link: str) -> tuple[str, ...]:
    if settings.admin_token_file is not None:
        return (f"  sign in with the token in {settings.admin_token_file}",)
    token, minutes = quote(str(settings.home / "token")), LINK_LIFE // timedelta(minutes=1)
    return (
        f"  sign in: {url}{urls.SIGN_IN}?token={link}",
        f"  once, within {minutes} minutes; later with the token in {token}",
        f'  or: SEATRIAL_URL={url} SEATRIAL_TOKEN="$(cat {token})" seatrial runs',
    )


def _first_secret(settings: Settings) -> str:
    """Return the operator's token from its file, or from the home, which gets one if needed."""
    if settings.admin_token_file is not None:
        return _given_secret(settings.admin_token_file)
    path: Path = settings.home / "token"
    if not path.exists():
        path.touch(mode=0o600)
        path.write_text(new_secret(settings.mark), encoding="ascii")
    return path.read_text(encoding="ascii").strip()


def _given_secret(file: Path) -> str:
    """Return the operator's token from the configured file, which controllers may share.

    Raises RefusedError.
    """
    try:
        secret = read_setting("SEATRIAL_ADMIN_TOKEN_FILE", file)
    except SettingsError as error:
        raise RefusedError(str(error)) from None
    if len(secret) < 20 or not (secret.isascii() and secret.isprintable()) or " " in secret:
        raise RefusedError(
            f"{file}: a token must have at least 20 ASCII characters, on one line, without spaces"
        )
    return secret


_YOUNG = 20_000
"""Allocations before a collection of the youngest generation; one page needs more than Python's
default of 700.
"""


def freeze_start_up_objects() -> None:
    """Exclude start-up objects from garbage collection, and collect less often.

    There are some hundred thousand such objects. Each collection of them would delay every response
    by a quarter of a second, and would free nothing.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG)


logger = logging.getLogger(__name__)


class WorkerThreads:
    """Runs named work in threads, and starts no work that is running already."""

    def __init__(self, threads: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._guard = threading.Lock()
        self._under_way: set[str] = set()

    def begin(self, name: str, work: Callable[[], None]) -> None:
        """Start the work as soon as a thread is free, unless work of this name is running."""
        with self._guard:
            if name in self._under_way:
                return
            self._under_way.add(name)
        self._pool.submit(self._do, name, work)

    def _do(self, name: str, work: Callable[[], None]) -> None:
        try:
            work()
        except StoreError as error:
            logger.warning("%s waits for the store: %s", name, error)
        except Exception:
            logger.exception("%s failed; it is tried again", name)
        finally:
            with self._guard:
                self._under_way.discard(name)
