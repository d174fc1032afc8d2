"""Archives that come from machines, which are not trusted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator


class BundleError(Exception):
    """The archive is too large, not an archive, or plays tricks with paths."""


UnpackBundle = Callable[[Iterable[bytes]], Iterator[tuple[str, Iterable[bytes]]]]
"""Yields (flat file name, its chunks), bounded in number and size. Raises BundleError."""
