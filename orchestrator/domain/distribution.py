"""Names of Python's distributions."""

from __future__ import annotations

import re


def canonical_name(name: str) -> str:
    """The one spelling that every tool agrees on: ``Torch_Bridge`` is ``torch-bridge``."""
    return re.sub(r"[-_.]+", "-", name).lower()
