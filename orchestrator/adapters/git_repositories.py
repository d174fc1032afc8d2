"""The repositories that a controller may access, and a hardened git command."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from urllib.parse import urlsplit

from orchestrator.adapters.guarded_http import Resolve, addresses_of
from orchestrator.adapters.guarded_proxy import (
    Look,
    ProxyRefusedError,
    checked_addresses,
    look_public,
)

FILE_LIMIT_BYTES = 8 * 1024**3
"""Maximum size of one file that git or pip writes, such as a pack."""
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
    """Decides which repositories git may access."""

    reached: bool = False
    """True if others can reach the controller: then it accesses only public https:// servers."""
    trusted: tuple[str, ...] = ()
    """URL prefixes that the operator allows in any case."""
    resolve: Resolve = addresses_of
    look: Look = look_public

    def refusal(self, url: str) -> str:
        """Return the reason why git may not access a URL; empty if it may."""
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
        """Return whether the URL is only accessed through the guarding proxy, on public servers."""
        return self.reached and not any(_begins(url, one) for one in self.trusted)

    def git(self, url: str, proxy: str = "") -> tuple[str, ...]:
        """Return the command prefix of every git command for this URL."""
        guarded = self.is_guarded(url)
        protocols = ("https",) if guarded else _OWN_PROTOCOLS
        allowed = f"GIT_ALLOW_PROTOCOL={':'.join(protocols)}"
        settings = (*_SETTINGS, *((f"http.proxy={proxy}",) if proxy else ()))
        options = tuple(word for setting in settings for word in ("-c", setting))
        return ("env", *_ENVIRONMENT, allowed, "git", *options)


def bounded(words: tuple[str, ...]) -> str:
    """Return a shell command that runs a program with a limit on the size of its files."""
    return f"ulimit -f {FILE_LIMIT_BYTES // 512} && exec {shlex.join(words)}"


def _begins(url: str, trusted: str) -> bool:
    """Return whether the URL is the trusted one or is below it."""
    below = trusted if trusted.endswith("/") else f"{trusted}/"
    return url == trusted or (url.startswith(below) and not _ODD.search(url))
