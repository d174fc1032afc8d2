"""The tree that an archive would make: nothing in it may lead out of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from orchestrator.adapters.files.tar_stream import Kind, Member
from orchestrator.application.ports.archives import ArchiveError

_MOST_HOPS = 40


class Tree:
    """Collects members and refuses what no honest archive holds."""

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._links: dict[str, str] = {}

    def add(self, member: Member) -> None:
        """Take one more member. Raises ArchiveError."""
        if member.kind is Kind.FOLDER:
            return
        name = member.name
        if not name or name in self._files or name in self._links:
            raise ArchiveError(f"{name!r} stands in the archive twice")
        if member.kind is Kind.LINK:
            self._links[name] = member.target
            return
        if member.kind is Kind.HARD_LINK and member.target.removeprefix("./") not in self._files:
            message = f"{name!r} is linked to {member.target!r}, which is not in the archive"
            raise ArchiveError(message)
        self._files.add(name)

    def check(self) -> None:
        """Look at all of it once it is complete. Raises ArchiveError."""
        check_links(self._links)
        for name in (*self._files, *self._links):
            parts = name.split("/")
            for depth in range(1, len(parts)):
                above = "/".join(parts[:depth])
                if above in self._links or above in self._files:
                    raise ArchiveError(f"{name!r} lies below {above!r}, which is no folder")


def check_links(links: Mapping[str, str]) -> None:
    """Follow each link, through other links too. Raises ArchiveError if one leaves the tree."""
    for name, target in links.items():
        if not target.isprintable():
            raise ArchiveError(f"the link {name!r} has an unprintable target")
        if not _stays_inside(name, target, links):
            raise ArchiveError(
                f"the link {name!r} -> {target!r} leaves the payload: copy what it points to"
            )


def _stays_inside(name: str, target: str, links: Mapping[str, str]) -> bool:
    if target.startswith("/"):
        return False
    where = name.split("/")[:-1]
    ahead = deque(_steps(target))
    hops = 0
    while ahead:
        step = ahead.popleft()
        if step != "..":
            where.append(step)
        elif where:
            where.pop()
        else:
            return False
        further = links.get("/".join(where))
        if further is not None:
            hops += 1
            if hops > _MOST_HOPS:
                raise ArchiveError(f"the link {name!r} -> {target!r} leads in a circle")
            if further.startswith("/"):
                return False
            where.pop()
            ahead.extendleft(reversed(_steps(further)))
    return True


def _steps(target: str) -> list[str]:
    return [step for step in target.split("/") if step not in ("", ".")]
