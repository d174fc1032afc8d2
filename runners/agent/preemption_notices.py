"""Polls the machine's metadata for the provider's preemption notice."""

from __future__ import annotations

import json
import threading
import time
from typing import Callable, Dict, Mapping, Optional

# Without a provider that gives notice, the HTTP library is not imported.
# ruff: noqa: PLC0415

_TIMEOUT_S = 2.0
_EVERY_S = 5.0
_ANSWER_BYTES = 4096
_NOT_FOUND = 404
_UNAUTHORIZED = 401
_TOKEN_S = 21_600
_GCP_WARNING_S = 30

Ask = Callable[[], Optional[str]]


class Notices:
    """Polls for a notice every five seconds in a separate thread.

    The thread only stores the notice: only the agent's main thread writes events.
    """

    def __init__(self, cloud: Optional[str], url: str) -> None:
        """Prepare to poll.

        Args:
            cloud: aws or gcp (also for a TPU machine); None polls nothing.
            url: URL of the metadata service, without a path.
        """
        sources: Mapping[str, Callable[[str], Ask]] = {"aws": _Aws, "gcp": _gcp}
        self._ask = sources[cloud](url.rstrip("/")) if cloud is not None else None
        self._notice: Optional[str] = None
        self._trouble: Optional[str] = None
        self._is_reported = False

    def start(self) -> None:
        """Start polling."""
        if self._ask is not None:
            threading.Thread(target=self._listen, name="notices", daemon=True).start()

    @property
    def notice(self) -> Optional[str]:
        """The time of preemption, for a person; None without a notice."""
        return self._notice

    def trouble(self) -> Optional[str]:
        """Return once why a notice might be missed; else None."""
        if self._trouble is None or self._is_reported:
            return None
        self._is_reported = True
        return self._trouble

    def _listen(self) -> None:
        assert self._ask is not None
        while self._notice is None:
            try:
                self._notice = self._ask()
            except (OSError, ValueError) as error:
                self._trouble = self._trouble or f"{type(error).__name__}: {error}"
            if self._notice is None:
                time.sleep(_EVERY_S)


class _Aws:
    """EC2's notice, about two minutes ahead; requested with a session token (IMDSv2)."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._token: Optional[str] = None

    def __call__(self) -> Optional[str]:
        """Poll once. Raises OSError or ValueError."""
        from urllib.error import HTTPError

        if self._token is None:
            header = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_S)}
            self._token = _fetch(f"{self._url}/latest/api/token", header, method="PUT")
        try:
            said = _fetch(
                f"{self._url}/latest/meta-data/spot/instance-action",
                {"X-aws-ec2-metadata-token": self._token},
            )
        except HTTPError as error:
            if error.code == _UNAUTHORIZED:
                self._token = None  # it has expired
            if error.code in (_NOT_FOUND, _UNAUTHORIZED):
                return None
            raise
        found = json.loads(said)
        if not isinstance(found, dict) or "action" not in found:
            raise ValueError(f"spot/instance-action is {said[:100]!r}")
        return f"the provider takes the machine at {found.get('time')} ({found['action']})"


def _gcp(url: str) -> Ask:
    """Return a function that polls Compute Engine's notice (30 s ahead), also for TPUs."""

    def ask() -> Optional[str]:
        address = f"{url}/computeMetadata/v1/instance/preempted"
        said = _fetch(address, {"Metadata-Flavor": "Google"}).strip()
        if said not in ("TRUE", "FALSE"):
            raise ValueError(f"instance/preempted is {said[:100]!r}")
        if said == "FALSE":
            return None
        goes = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + _GCP_WARNING_S))
        return f"the provider takes the machine at about {goes}"

    return ask


def _fetch(url: str, headers: Dict[str, str], *, method: str = "GET") -> str:
    from urllib.request import ProxyHandler, Request, build_opener

    # Never through a proxy: it would answer for another machine.
    opener = build_opener(ProxyHandler({}))
    with opener.open(Request(url, headers=headers, method=method), timeout=_TIMEOUT_S) as answer:
        raw: bytes = answer.read(_ANSWER_BYTES)
    return raw.decode("utf-8", "replace")
