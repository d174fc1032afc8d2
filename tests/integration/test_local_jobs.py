"""Who jobs of `provider: local` run as, where a controller may not run them as itself."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.adapters.files.home_folder import system_user
from orchestrator.adapters.signing import DsseSigner
from orchestrator.application.tokens import create_token
from orchestrator.bootstrap import local_job_policy
from orchestrator.bootstrap.controller_process import (
    ServeOptions,
    _local_jobs,
    _operator,
    _require_alone,
    _require_signing_key,
)
from orchestrator.bootstrap.controller_wiring import WorkspacePool
from orchestrator.bootstrap.local_job_policy import LocalJobs, not_here
from orchestrator.cli.errors import RefusedError
from orchestrator.config import Settings
from orchestrator.domain.audit import AuditFilters
from orchestrator.domain.caller_identity import Scope
from orchestrator.domain.document_problems import InvalidDocumentError
from orchestrator.domain.machine import ConfigError, Extent, LaunchRequest, LocalEndpoint, Place
from runners.fake.cloud import MemoryHostStore
from runners.local import LocalProvider
from runners.provider_context import ProviderContext
from tests.accounts import ACCOUNT, beside_account, needs_account
from tests.integration.api_context import Desk
from tests.platforms import as_platform

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("jobs", "account", "expected"),
    [
        (LocalJobs(), "", ""),
        (LocalJobs(account="a"), "a", ""),
        (LocalJobs(refusal="no"), "", "no"),
        (LocalJobs(refusal="no"), "a", "no"),
        (LocalJobs(account="a"), "", "begun as the controller's own user, and this one runs jobs"),
        (LocalJobs(), "a", "begun as a, and this one runs jobs of provider: local as its own user"),
    ],
)
def test_what_was_begun_as_one_user_is_not_gone_on_with_as_another(
    jobs: LocalJobs, account: str, expected: str
) -> None:
    said = jobs.refusal_as(account)
    assert expected in said
    assert bool(said) == bool(expected)


def test_where_no_job_may_begin_what_was_begun_is_still_ended(tmp_path: Path) -> None:
    pool = WorkspacePool(
        keys=tmp_path,
        local_base=tmp_path / "work",
        login=lambda _: None,
        local=LocalJobs(refusal=not_here("me", is_near=False)),
    )
    hostname = subprocess.run(["hostname"], capture_output=True, text=True, check=True).stdout
    workspace = pool.open(LocalEndpoint(hostname.strip()))
    for begin in (lambda: workspace.start("a-1", {"v": 1}), workspace.probe):
        with pytest.raises(ConfigError, match="others can reach this one"):
            begin()
    assert workspace.pull("a-1", events_offset=0, log_offset=0, limit_bytes=10) is None
    workspace.close("a-1")
    workspace.disconnect()


def test_the_provider_says_no_before_anything_is_launched() -> None:
    settings = LocalJobs(refusal=not_here("me", is_near=False)).for_providers()
    provider = LocalProvider(ProviderContext(book=MemoryHostStore(), settings=settings))
    request = LaunchRequest("t", Place("local"), as_platform({}), {})
    for ask in (lambda: provider.places(as_platform({})), lambda: provider.launch(request)):
        with pytest.raises(ConfigError, match="serve --local-jobs-as ACCOUNT") as refused:
            ask()
        assert refused.value.extent is Extent.PROJECT
    assert list(provider.inventory()) == []
    provider.terminate("local-t")  # what was handed out earlier goes back


@pytest.mark.parametrize(
    ("host", "database", "far"),
    [
        (None, None, ""),
        ("::1", None, ""),
        ("localhost", None, ""),
        ("0.0.0.0", None, "on the address 0.0.0.0"),
        ("host.example", None, "on the address host.example"),
        (None, "postgresql://x/y", "with a database that controllers share"),
    ],
)
def test_an_operator_who_is_alone_may_name_their_own_user(
    tmp_path: Path, host: str | None, database: str | None, far: str
) -> None:
    """The refusal has the very command where it works, and it works nowhere else."""
    me = system_user()
    settings = Settings(home=tmp_path, database_url=database)

    def jobs(account: str | None) -> LocalJobs:
        named = ServeOptions(
            until_idle=False, host=host, port=None, cells=True, local_jobs_as=account
        )
        return _local_jobs(settings, named)

    said = jobs(None).refusal
    assert "others can reach this one" in said
    assert (f"`seatrial serve --local-jobs-as {me}`" in said) == (not far)
    if far:
        with pytest.raises(RefusedError, match=f"possible only where nobody else.* not {far}"):
            jobs(me)
    else:
        assert jobs(me) == LocalJobs(reached=True)


@pytest.mark.parametrize(
    ("named", "far"),
    [
        ({"public_url": "https://seatrial.example"}, "behind SEATRIAL_PUBLIC_URL=https://seatrial"),
        ({"oidc_issuer": "https://login.example"}, "where people sign in at an issuer"),
    ],
)
def test_who_answers_others_may_not_name_their_own_user(
    tmp_path: Path, named: dict[str, str], far: str
) -> None:
    settings = Settings(home=tmp_path, **named)
    options = ServeOptions(
        until_idle=False, host=None, port=None, cells=True, local_jobs_as=system_user()
    )
    with pytest.raises(RefusedError, match=f"nobody else uses the controller, so not {far}"):
        _local_jobs(settings, options)


def test_own_user_is_refused_while_others_can_launch(api: Desk) -> None:
    def token(name: str, scope: str) -> str:
        return create_token(api.context, name, Scope(scope), days=1)[0].id

    token("me", "admin")
    token("a reader", "read")
    _require_alone(LocalJobs(reached=True), api.context, "me")
    theirs = token("a pipeline", "run")
    with pytest.raises(RefusedError, match=r"which they can launch: a pipeline\. Revoke them"):
        _require_alone(LocalJobs(reached=True), api.context, "me")
    for elsewhere in (LocalJobs(reached=True, account="apart"), LocalJobs()):
        _require_alone(elsewhere, api.context, "me")
    api.database.stores.tokens.revoke(theirs, at=api.clock.now())
    _require_alone(LocalJobs(reached=True), api.context, "me")

    alone = replace(api.context, sole_launcher="Me")
    for name, scope in (("me", "admin"), ("a reader", "read")):
        create_token(alone, name, Scope(scope), days=1)
    with pytest.raises(InvalidDocumentError, match="can read what that user can") as later:
        create_token(alone, "a pipeline", Scope.RUN, days=1)
    assert "`serve --local-jobs-as`" in str(later.value)
    assert {one.name for one in api.database.stores.tokens.list() if one.revoked_at is None} == {
        "me",
        "a reader",
    }


def test_an_account_is_proved_apart_from_every_project(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[tuple[str, tuple[str, ...]]] = []

    def prove(_account: object, *, home: str, secrets: tuple[str, ...]) -> None:
        asked.append((home, secrets))

    monkeypatch.setattr(local_job_policy, "account_of", lambda name: name)
    monkeypatch.setattr(local_job_policy, "prove_apart", prove)
    key = tmp_path / "key"
    first = Settings(home=tmp_path / "first")
    further = Settings(home=tmp_path / "further", signing_key_file=key, local_jobs_as="apart")
    options = ServeOptions(until_idle=False, host=None, port=None, cells=True)
    jobs = _local_jobs(further, options, (first, further))
    assert jobs == LocalJobs(account="apart", reached=True)
    assert asked == [(str(first.home), ()), (str(further.home), (str(key),))]


@pytest.mark.parametrize("name", ["", " "])
def test_an_account_without_a_name_is_refused(tmp_path: Path, name: str) -> None:
    """A shell in which a variable is unset names none."""
    options = ServeOptions(until_idle=False, host=None, port=None, cells=True, local_jobs_as=name)
    with pytest.raises(RefusedError, match=r"--local-jobs-as names no account.*id -un"):
        _local_jobs(Settings(home=tmp_path, local_jobs_as="other"), options)


def test_the_first_token_has_an_entry_once(tmp_path: Path, api: Desk) -> None:
    settings = Settings(home=tmp_path)
    options = ServeOptions(until_idle=False, host=None, port=None, cells=True)
    for _ in range(2):
        name, secret = _operator(settings, options, api.context)
    [token] = api.database.stores.tokens.list()
    [entry] = api.database.stores.audit.page(AuditFilters(), limit=9)
    assert (entry.operation, entry.resource) == ("serve", f"tokens/{token.id}")
    assert (entry.actor, entry.token, entry.outcome) == (name, "socket", "done")
    assert entry.after is not None
    assert (entry.before, entry.after["scope"]) == (None, "admin")
    assert secret not in str(entry)


@pytest.mark.parametrize(
    ("content", "why"), [(None, "cannot be read: No such file"), ("no key", "is no private key")]
)
def test_a_signing_key_that_cannot_sign_ends_the_start(
    tmp_path: Path, api: Desk, content: str | None, why: str
) -> None:
    file = tmp_path / "signing.pem"
    if content is not None:
        file.write_text(content)
    gate = replace(api.context.gate, signer=DsseSigner(tmp_path, file))
    settings = Settings(home=tmp_path, signing_key_file=file)
    with pytest.raises(RefusedError, match=f"SEATRIAL_SIGNING_KEY_FILE .* {why}"):
        _require_signing_key(settings, replace(api.context, gate=gate))


KEEPER = """
useradd keeper
install -d -o keeper -m 700 "$folder/keepers"
echo 'keeper ALL=({account}) NOPASSWD: ALL' >/etc/sudoers.d/90-keeper
{more}
set -- setpriv --reuid keeper --regid keeper --clear-groups "$@"
"""
BY_SUDO = """
import os, sys, time
from orchestrator.domain.machine import CommandTimeoutError
from runners.shell.local_account import AccountError, account_of, prove_apart
from runners.shell.local import LocalShell
os.environ["CANARY"] = "a secret"
account = account_of(sys.argv[1])
try:
    prove_apart(account, home=sys.argv[2], secrets=())
except AccountError as error:
    sys.exit(str(error))
shell = LocalShell(account)
print(shell.run('id -un; echo "$HOME ${CANARY-unseen}"; cat', stdin=[b"fed"]).stdout.decode())
begun = time.monotonic()
try:
    shell.run("sleep 600 & exec sleep 600", timeout_s=1)
except CommandTimeoutError:
    print("ended", time.monotonic() - begun < 100)
print(shell.run("pgrep -r R,S,D -u $(id -u) sleep").status)
"""


def as_keeper(folder: Path, more: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", BY_SUDO, ACCOUNT, str(folder / "keepers")]
    setup = KEEPER.format(account=ACCOUNT, more=more)
    return subprocess.run(
        beside_account(folder, *command, setup=setup),
        env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@needs_account
def test_a_rule_of_sudo_does_where_the_controller_is_not_root(tmp_path: Path) -> None:
    done = as_keeper(tmp_path / "beside")
    assert done.returncode == 0, done.stderr
    said = f"{ACCOUNT}\n/home/{ACCOUNT} unseen\nfed\nended True\n1\n"
    assert done.stdout == said


@needs_account
def test_without_root_and_without_a_rule_it_is_refused(tmp_path: Path) -> None:
    done = as_keeper(tmp_path / "beside", "rm /etc/sudoers.d/90-keeper")
    assert done.returncode == 1
    assert f"no command can be run as {ACCOUNT}: the controller is not root" in done.stderr
    assert f"or let sudo run commands as {ACCOUNT} without a password" in done.stderr
