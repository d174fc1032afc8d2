"""pip where a payload says where to look: it reaches public servers, and the operator's index."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from urllib.parse import urlsplit
from urllib.request import getproxies

from orchestrator.adapters.files.pip_commands import run
from orchestrator.adapters.guarded_proxy import (
    Look,
    ProxyRefusedError,
    checked_addresses,
    guarded_proxy,
    look_public,
)
from orchestrator.adapters.notify.guarded_http import Resolve, addresses_of
from orchestrator.application.ports.wheels import WheelsError

Outward = Callable[[Sequence[str]], AbstractContextManager[tuple[str, ...]]]
"""Given the addresses that somebody named: the words that pip is started behind, for a while.

Raises WheelsError where one of them is not asked."""

_HOST = re.compile(r"https?://(?:[^/@\s']*@)?([A-Za-z0-9.-]+)")


@contextmanager
def anywhere(_: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Reach whatever is named: the controller is one person's own."""
    yield ()


@contextmanager
def guarded(
    urls: Sequence[str], *, resolve: Resolve = addresses_of, look: Look = look_public
) -> Iterator[tuple[str, ...]]:
    """Reach public servers over https:// alone, and the index that pip's configuration names.

    Where the environment names a proxy, that one decides.
    """
    for url in urls:
        _check(url, resolve, look)
    if not urls or getproxies().get("https"):
        yield ()
        return
    with guarded_proxy(resolve, look) as proxy:
        direct = ",".join([*_index_hosts(), getproxies().get("no", "")]).strip(",")
        names = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy")
        given = [f"{name}={proxy}" for name in names]
        yield ("env", *given, f"NO_PROXY={direct}", f"no_proxy={direct}")


def _check(url: str, resolve: Resolve, look: Look) -> None:
    try:
        parts = urlsplit(url)
        checked_addresses(parts.hostname or "", parts.port or 443, resolve=resolve, look=look)
    except (ProxyRefusedError, ValueError) as error:
        raise WheelsError(f"{url} is not asked: {error}") from None


def _index_hosts() -> list[str]:
    """The servers that the operator set pip up with."""
    said = run((sys.executable, "-m", "pip", "config", "list"), what="pip config list")
    return sorted(set(_HOST.findall(said)))
