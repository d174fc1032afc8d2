"""Local jobs: whether they run on the controller's computer, and as which account."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.adapters.git_repositories import Repositories
from orchestrator.adapters.subject_resolver import BuildFolder, GitAndPipSubjects
from orchestrator.config import Settings
from runners.shell.local import LocalShell
from runners.shell.local_account import AccountError, account_of, prove_apart

_NOT_HERE = (
    "provider: local runs its jobs on the computer of the controller, and others can reach this"
    " one: they could read its tokens and keys. {}Name another provider (static takes hosts of your"
    " own, over SSH), launch it on a home that no `seatrial serve` holds (`SEATRIAL_HOME=FOLDER"
    " seatrial run ...`), or start the controller with `seatrial serve --local-jobs-as ACCOUNT`,"
    " which needs root or a rule of sudo"
)
_ALONE = "If nobody but you has a token of it, start it with `seatrial serve --local-jobs-as {}`. "
_NOT_AS_OURSELVES = (
    "{} is the controller's own user, whose files its jobs could read: this is possible only where"
    " nobody else uses the controller, so not {}. Name an account that owns nothing else"
)
_AS_ANOTHER = "the attempt was begun as {}, and this one runs jobs of provider: local as {}"


@dataclass(frozen=True, slots=True)
class LocalJobs:
    """Settings of the provider ``local``; by default, jobs run as the controller's own user."""

    account: str = ""
    """Account that runs the jobs; empty for the controller's own user."""
    refusal: str = ""
    """Why no local jobs run here, and what to do instead; empty if they run."""
    umask: int = -1
    """The jobs' umask; -1 for the umask of this process."""
    reached: bool = False
    """Whether others can reach this controller."""

    @property
    def as_ourselves(self) -> bool:
        """Whether jobs run as the controller's own user although others can reach it."""
        return self.reached and not self.refusal and not self.account

    def refusal_as(self, account: str) -> str:
        """Return why no job may run as this account ("": our own user); empty if it may."""
        if self.refusal or account == self.account:
            return self.refusal
        return _AS_ANOTHER.format(
            account or "the controller's own user", self.account or "its own user"
        )

    def for_providers(self) -> dict[str, str]:
        """Return the settings by the names that providers read, without unset ones."""
        said = {"local_jobs_as": self.account, "local_jobs_refused": self.refusal}
        return {name: value for name, value in said.items() if value}


AS_OURSELVES = LocalJobs()


def not_here(own_user: str, *, is_near: bool) -> str:
    """Return why no local job runs on a controller that others can reach, and what to do.

    Args:
        own_user: Name of the controller's own user.
        is_near: Whether only this computer reaches the controller, and its database is not shared.
    """
    return _NOT_HERE.format(_ALONE.format(own_user) if is_near else "")


def jobs_as_ourselves(name: str, *, far: str) -> LocalJobs:
    """Return settings for jobs as the controller's own user, if its operator asked for that.

    Args:
        name: Name of the controller's own user.
        far: How other computers reach this controller; empty if they do not.

    Raises:
        AccountError: Other computers reach this controller.
    """
    if far:
        raise AccountError(_NOT_AS_OURSELVES.format(name, far))
    return LocalJobs(reached=True)


def jobs_as(name: str, served: Sequence[Settings], *, reached: bool) -> LocalJobs:
    """Return settings for an account that cannot reach the controller's files.

    Args:
        name: The account.
        served: All projects that the controller serves.
        reached: Whether others reach the controller.

    Raises AccountError if the account can reach a file of a project.
    """
    for one in served:
        files = (
            *(one.admin_token_file, one.signing_key_file, one.database_url_file),
            one.oidc_client_secret_file,
        )
        secrets = tuple(str(file) for file in files if file is not None)
        prove_apart(account_of(name), home=str(one.home), secrets=secrets)
    return LocalJobs(account=name, reached=reached)


def subjects_of(settings: Settings, local: LocalJobs, scratch: Path) -> GitAndPipSubjects:
    """Return the resolver of subjects; it builds as local jobs run, or not if they are refused."""
    repositories = Repositories(local.reached, settings.trusted_repositories)
    if local.refusal:
        return GitAndPipSubjects(None, repositories)
    account = account_of(local.account) if local.account else None
    folder = account.work if account else str(scratch)
    room = BuildFolder(LocalShell(account), folder, account=local.account)
    return GitAndPipSubjects(room, repositories)
