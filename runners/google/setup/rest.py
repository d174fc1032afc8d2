"""Google's administrative APIs, by JSON over HTTP: one library less for each of five services."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import requests
from google.api_core import exceptions as api
from google.api_core.retry import Retry
from google.auth.transport.requests import AuthorizedSession

from orchestrator.domain.machine import ProviderUnavailableError
from runners.google.account import GoogleAccount
from runners.google.responses import AlreadyThereError, NotThereError, create, listed

ENDPOINT = "gcp_account_endpoint"
"""Setting with the URL of an emulation, ``http://host:port``; the API's host name becomes the first
part of the path.
"""
TIMEOUT_S = 60
LIMIT_S = 300
Json = dict[str, Any]


class _NotYetError(Exception):
    """The awaited resource is missing."""


class Rest:
    """Calls ``https://HOST/PATH``; raises ProviderError and the two errors of `responses`."""

    def __init__(self, settings: Mapping[str, str], account: GoogleAccount) -> None:
        self._endpoint = settings.get(ENDPOINT, "")
        self._account = account
        self._session: requests.Session | None = None

    def call(self, method: str, host: str, path: str, body: Json | None = None) -> Json:
        """Call the API once. Raises NotThereError for 404, AlreadyThereError for 409."""
        base = f"{self._endpoint}/{host}" if self._endpoint else f"https://{host}"

        def send() -> Json:
            answer = self._open().request(method, f"{base}/{path}", json=body, timeout=TIMEOUT_S)
            if not answer.ok:
                raise api.from_http_response(answer)  # type: ignore[no-untyped-call]
            said: Json = answer.json() if answer.content else {}
            return said

        return create(f"{method} {host}/{path}", send)

    def get(self, host: str, path: str) -> Json:
        """Read a resource that must exist. Raises ProviderError."""
        return listed(f"GET {host}/{path}", lambda: self.call("GET", host, path))

    def find(self, host: str, path: str) -> Json | None:
        """Read a resource; None if it does not exist."""
        try:
            return self.call("GET", host, path)
        except NotThereError:
            return None

    def ensure(self, method: str, host: str, path: str, body: Json, *, update: str = "") -> bool:
        """Create a resource, or update an existing one; return whether it was created.

        An existing one is changed by PATCH of the path `update`, and unchanged without it.
        """
        try:
            self.finish(host, self.call(method, host, path, body))
        except AlreadyThereError:
            if update:
                self.finish(host, self.call("PATCH", host, update, body))
            return False
        return True

    def delete(self, host: str, path: str) -> bool:
        """Delete a resource, and wait until it is gone; return False if it was missing."""
        try:
            self.finish(host, self.call("DELETE", host, path))
        except NotThereError:
            return False
        return True

    def finish(self, host: str, operation: Json) -> None:
        """Wait until a long-running operation is done. Raises ProviderError if it failed."""
        name = str(operation.get("name", ""))
        if "/operations/" not in name and not name.startswith("operations/"):
            return
        version = "v2" if host.startswith("run.") else "v1"

        def is_done() -> bool:
            nonlocal operation
            operation = self.get(host, f"{version}/{name}")
            return bool(operation.get("done"))

        self.until(f"{host}/{name}", is_done)
        failed = operation.get("error")
        if failed:
            code, words = failed.get("code", 2), str(failed.get("message", ""))
            create(name, _raise(api.from_grpc_status(code, words)))  # type: ignore[no-untyped-call]

    def until(self, what: str, is_true: Callable[[], bool]) -> None:
        """Poll until the condition is true. Raises ProviderUnavailableError at the time limit."""

        def look() -> None:
            if not is_true():
                raise _NotYetError(what)

        retry = Retry(
            predicate=lambda error: isinstance(error, _NotYetError),
            initial=0.2,
            maximum=5.0,
            timeout=LIMIT_S,
        )
        try:
            create(what, retry(look))
        except api.RetryError as error:
            raise ProviderUnavailableError(f"{what}: not done within {LIMIT_S} s") from error

    def _open(self) -> requests.Session:
        if self._session is None:
            emulated = bool(self._endpoint)
            self._session = (
                requests.Session() if emulated else AuthorizedSession(self._account.credentials)  # type: ignore[no-untyped-call]
            )
        return self._session


def _raise(error: Exception) -> Callable[[], Json]:
    def call() -> Json:
        raise error

    return call
