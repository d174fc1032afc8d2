"""Validation of git URLs and branch names."""

from __future__ import annotations

from urllib.parse import urlsplit

_BRANCH_BREAKS = frozenset(" ~^:?*[\\")


def url_fault(url: str) -> str:
    """Return what is wrong with a repository's URL; empty where nothing is.

    An address is stored, shown and repeated in errors: a secret must not stand in it.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return "is no address"
    if parts.password or (parts.username and parts.scheme in ("http", "https")):
        return "must not hold a name or a token: let git's credential helper or an SSH key answer"
    return ""


def branch_fault(branch: str) -> str:
    """Return what is wrong with a branch's name; empty where nothing is."""
    odd = branch.startswith("-") or not branch.isprintable() or _BRANCH_BREAKS & set(branch)
    return f"{branch!r} cannot be the name of a branch" if odd else ""
