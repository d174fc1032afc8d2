"""Which repositories a controller asks, and git that does nothing but that."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from urllib.parse import urlsplit

from orchestrator.adapters.guarded_proxy import (
    Look,
    ProxyRefusedError,
    checked_addresses,
    look_public,
)
from orchestrator.adapters.notify.guarded_http import Resolve, addresses_of

FILE_LIMIT_BYTES = 8 * 1024**3
"""Of one file that git or pip writes, such as a pack."""
_SLOW_BYTES_S, _SLOW_FOR_S = 1000, 120
_OWN_PROTOCOLS = ("https", "http", "ssh", "git", "file")
_ODD = re.compile(r"(?:^|/)\.\.?(?:/|$)|%|\\|\s")
_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "submodule.recurse=false",
    "http.followRedirects=false",
    f"http.lowSpeedLimit={_SLOW_BYTES_S}",
    f"http.lowSpeedTime={_SLOW_FOR_S}",
)
_ENVIRONMENT = ("GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "SSH_ASKPASS_REQUIRE=never")
_WAY_OUT = (
    "the operator can list the repository, or what its address begins with, in"
    " SEATRIAL_TRUSTED_REPOSITORIES"
)


@dataclass(frozen=True, slots=True)
class Repositories:
    """Which repositories git is pointed at, when somebody names one."""

    reached: bool = False
    """Whether others can reach the controller: then it asks public https:// servers alone."""
    trusted: tuple[str, ...] = ()
    """Beginnings of addresses that the operator lets through, whatever they are."""
    resolve: Resolve = addresses_of
    look: Look = look_public

    def refusal(self, url: str) -> str:
        """Why git is not pointed there; empty where it is."""
        if not self.is_guarded(url):
            return ""
        parts = urlsplit(url)
        if parts.scheme != "https" or not parts.hostname:
            return (
                f"{url} is not asked: others can reach this controller, so it takes https://"
                f" addresses; {_WAY_OUT}"
            )
        try:
            port = parts.port or 443
            checked_addresses(parts.hostname, port, resolve=self.resolve, look=self.look)
        except (ProxyRefusedError, ValueError) as error:
            return f"{url} is not asked: {error}; {_WAY_OUT}"
        return ""

    def is_guarded(self, url: str) -> bool:
        """Whether only public servers may be asked for it, through the guarding proxy."""
        return self.reached and not any(_begins(url, one) for one in self.trusted)

    def git(self, url: str, proxy: str = "") -> tuple[str, ...]:
        """The words that every git command about this address begins with."""
        guarded = self.is_guarded(url)
        protocols = ("https",) if guarded else _OWN_PROTOCOLS
        allowed = f"GIT_ALLOW_PROTOCOL={':'.join(protocols)}"
        settings = (*_SETTINGS, *((f"http.proxy={proxy}",) if proxy else ()))
        options = tuple(word for setting in settings for word in ("-c", setting))
        return ("env", *_ENVIRONMENT, allowed, "git", *options)


def bounded(words: tuple[str, ...]) -> str:
    """A shell command that runs a program which may fill a disk only so far."""
    return f"ulimit -f {FILE_LIMIT_BYTES // 512} && exec {shlex.join(words)}"


def _begins(url: str, trusted: str) -> bool:
    """Whether the address is the trusted one or lies below it."""
    below = trusted if trusted.endswith("/") else f"{trusted}/"
    return url == trusted or (url.startswith(below) and not _ODD.search(url))
