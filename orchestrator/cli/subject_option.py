"""What `--subject` of a schedule says."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.cli.errors import USAGE, CliError

_WAYS = "fixed, latest, latest:PACKAGE, branch, or git+URL@BRANCH"


@dataclass(frozen=True, slots=True)
class Selector:
    """Which subject a firing is about."""

    kind: str
    package: str = ""
    prereleases: bool = False
    url: str = ""
    branch: str = ""

    @property
    def is_fixed(self) -> bool:
        """Whether its wheel, if it has one, is uploaded now."""
        return self.kind == "fixed"

    @property
    def body(self) -> dict[str, object]:
        """What the API takes."""
        return {
            "kind": self.kind,
            "package": self.package,
            "prereleases": self.prereleases,
            "url": self.url,
            "branch": self.branch,
        }


def read_selector(text: str, *, prereleases: bool = False) -> Selector:
    """Read it. Raises CliError."""
    if text.startswith("git+"):
        found = _from_git(text.removeprefix("git+"))
    else:
        kind, _, package = text.partition(":")
        if kind not in ("fixed", "latest", "branch") or (package and kind != "latest"):
            raise CliError(f"--subject {text}: say {_WAYS}", code=USAGE)
        found = Selector(kind, package=package, prereleases=prereleases)
    if prereleases and found.kind != "latest":
        raise CliError("--pre goes with --subject latest", code=USAGE)
    return found


def _from_git(text: str) -> Selector:
    url, _, branch = text.rpartition("@")
    if not url or not branch or ":" in branch:
        raise CliError(f"--subject git+{text}: say git+URL@BRANCH", code=USAGE)
    return Selector("branch", url=url, branch=branch)
