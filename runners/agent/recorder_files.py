"""What the agent brought for the jobs' path, and whether it is still the same."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Dict, Optional

from .layout import on_path


@lru_cache(maxsize=None)
def digests_at_start() -> Dict[str, str]:
    """Return name and sha256 of each file; asked first before anything of the payload runs."""
    return _digests()


def changed() -> Optional[str]:
    """Name a file that is not what it was when the attempt began."""
    now = _digests()
    return next((name for name, was in digests_at_start().items() if now.get(name) != was), None)


def _digests() -> Dict[str, str]:
    files = sorted(on_path().glob("*.py"))
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
