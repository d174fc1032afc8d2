"""Comparison of version numbers and version ranges."""

from __future__ import annotations

import re


def canonical_name(name: str) -> str:
    """Return the canonical name of a distribution: ``torch-bridge`` for ``Torch_Bridge``."""
    return re.sub(r"[-_.]+", "-", name).lower()


_CLAUSE = re.compile(r"(==|!=|>=|<=|>|<)\s*([0-9A-Za-z.+!-]+(?:\.\*)?)")
_NUMBERS = re.compile(r"v?(\d+(?:\.\d+)*)(.*)", re.DOTALL)
_BEFORE = re.compile(r"[.-]?(?:a|b|rc|dev|alpha|beta|pre)", re.IGNORECASE)

Key = tuple[tuple[int, ...], int]


def is_version_range(spec: str) -> bool:
    """Whether the text is a version range, as ``>=0.4.6,<0.5`` or ``==0.4.*``; or empty."""
    return all(_CLAUSE.fullmatch(part.strip()) for part in spec.split(",")) if spec else True


def is_same_version(one: str, other: str) -> bool:
    """Whether two texts are one version, as ``1.0`` and ``1.0.0``, or ``1.0rc1`` and ``1.0-rc1``.

    The part after a ``+`` is compared only if both have one.
    """
    (mine, _, built), (theirs, _, also) = (text.strip().partition("+") for text in (one, other))
    return _spelled(mine) == _spelled(theirs) and (not built or not also or built == also)


def _spelled(version: str) -> str:
    parts = _NUMBERS.fullmatch(version.lower())
    if parts is None:
        return version
    return re.sub(r"(\.0+)+$", "", parts[1]) + re.sub("[-_.]", "", parts[2])


def version_fits(spec: str, version: str) -> bool:
    """Whether a version is within a range; an empty range contains every version.

    A pre-release (``0.5rc1``, ``0.5.dev3``) is below its release. The part after a ``+`` is
    ignored. A version without numbers is in no range.
    """
    if not spec:
        return True
    return all(_fits(part.strip(), version) for part in spec.split(","))


def _fits(clause: str, version: str) -> bool:
    parts = _CLAUSE.fullmatch(clause)
    found = _key(version)
    if parts is None or found is None:
        return False
    operator, wanted = parts.groups()
    if wanted.endswith(".*"):
        return _is_of_series(found, wanted.removesuffix(".*"), equal=operator == "==")
    other = _key(wanted)
    if other is None:
        return False
    sign = (found > other) - (found < other)
    return sign in _SIGNS[operator]


_SIGNS = {"==": (0,), "!=": (-1, 1), ">=": (0, 1), "<=": (-1, 0), ">": (1,), "<": (-1,)}


def _is_of_series(found: Key, series: str, *, equal: bool) -> bool:
    key = _key(series)
    if key is None:
        return False
    wanted = tuple(int(n) for n in series.lstrip("v").split(".") if n.isdigit())
    padded = found[0] + (0,) * len(wanted)
    return (padded[: len(wanted)] == wanted) is equal


def _key(version: str) -> Key | None:
    parts = _NUMBERS.fullmatch(version.strip())
    if parts is None or len(version) > _LONGEST:
        return None
    numbers = [int(n) for n in parts[1].split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers), -1 if _BEFORE.match(parts[2]) else 0


_LONGEST = 200
