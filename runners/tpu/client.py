"""The connection to the TPU API, and the only module that handles its exceptions."""

from __future__ import annotations

import ipaddress
import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

import grpc  # type: ignore[import-untyped]
from google.api_core import exceptions as api
from google.api_core.client_options import ClientOptions
from google.auth import exceptions as sign_in
from google.cloud import tpu_v2
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport
from google.protobuf import json_format
from google.rpc import error_details_pb2  # type: ignore[import-untyped]

from orchestrator.domain.machine import (
    CredentialsError,
    Extent,
    ProviderError,
    ProviderUnavailableError,
)
from runners.google.account import GoogleAccount
from runners.provider_context import plain_words
from runners.tpu.errors import ApiRefusal, code_name, refused

T = TypeVar("T")

READ_TIMEOUT_S, WRITE_TIMEOUT_S = 20.0, 30.0
READ_ATTEMPTS = 2
_HTTP_CODES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ALREADY_EXISTS",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class TpuApi:
    """Opens the client at its first use; safe to share between threads."""

    def __init__(self, account: GoogleAccount, *, endpoint: str) -> None:
        self._account = account
        self._endpoint = endpoint
        self._lock = threading.Lock()
        self._client: tpu_v2.TpuClient | None = None

    @property
    def simulated(self) -> bool:
        """Whether the API is an emulation."""
        return self._account.is_simulated

    @property
    def project(self) -> str:
        """The Google Cloud project. Raises ConfigError, CredentialsError."""
        return self._account.project

    def read(self, what: str, call: Callable[[tpu_v2.TpuClient], T]) -> T:
        """Send a read request, twice at most. Raises ProviderError."""
        for _ in range(READ_ATTEMPTS - 1):
            try:
                return self.once(what, call)
            except ProviderUnavailableError:
                continue
        return self.once(what, call)

    def find(self, what: str, call: Callable[[tpu_v2.TpuClient], T]) -> T | None:
        """Read a resource; None if it does not exist. Raises ProviderError."""
        try:
            return self.read(what, call)
        except ProviderError as error:
            if error.code == "NOT_FOUND":
                return None
            raise

    def once(self, what: str, call: Callable[[tpu_v2.TpuClient], T]) -> T:
        """Send a request once. Raises ProviderError."""
        return guarded(what, lambda: call(self._open()))

    def close(self) -> None:
        """Drop the connection; the next call opens another one."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.transport.close()  # type: ignore[no-untyped-call]

    def _open(self) -> tpu_v2.TpuClient:
        with self._lock:
            if self._client is None:
                self._client = self._made()
            return self._client

    def _made(self) -> tpu_v2.TpuClient:
        endpoint = self._endpoint
        if endpoint and is_loopback(endpoint):
            # Neither encrypted nor signed in; a proxy of the environment must not see it either.
            quiet = [("grpc.enable_http_proxy", 0), ("grpc.max_reconnect_backoff_ms", 2000)]
            channel = grpc.insecure_channel(endpoint, options=quiet)
            return tpu_v2.TpuClient(transport=TpuGrpcTransport(channel=channel))
        options = ClientOptions(api_endpoint=endpoint or None)
        return tpu_v2.TpuClient(credentials=self._account.credentials, client_options=options)


def guarded(what: str, call: Callable[[], T]) -> T:
    """Call Google; every exception of its libraries becomes a ProviderError.

    Args:
        what: The request and its place, for a person.
        call: The call.

    Raises CredentialsError.
    """
    try:
        return call()
    except api.GoogleAPICallError as error:
        raise refused(answer_of(error), what) from error
    except api.RetryError as error:
        raise _unanswered(what, error, "DEADLINE_EXCEEDED") from error
    except sign_in.TransportError as error:
        raise _unanswered(what, error, "UNAVAILABLE") from error
    except sign_in.GoogleAuthError as error:
        raise CredentialsError(
            f"{what}: no usable credentials of Google Cloud ({error}); run `gcloud auth "
            "application-default login`, or name a service account's key in "
            "GOOGLE_APPLICATION_CREDENTIALS",
            code=type(error).__name__,
            extent=Extent.PROJECT,
        ) from error
    except (grpc.RpcError, OSError, json_format.ParseError) as error:
        raise _unanswered(what, error, "UNAVAILABLE") from error


def _unanswered(what: str, error: Exception, code: str) -> ProviderUnavailableError:
    return ProviderUnavailableError(f"{what}: {plain_words(str(error))}", code=code)


def answer_of(error: api.GoogleAPICallError) -> ApiRefusal:
    """Return the API's answer from its client's exception."""
    status = error.grpc_status_code
    number = int(error.code) if error.code is not None else 0
    code = status.name if status is not None else _HTTP_CODES.get(number, "UNKNOWN")
    return ApiRefusal(code, error.message or "", kinds(error.details))


def status_answer(number: int, words: str, details: Iterable[object]) -> ApiRefusal:
    """Return the failure of an operation or a queue (a ``google.rpc.Status``)."""
    return ApiRefusal(code_name(number), words, kinds(details), late=True)


def kinds(details: Iterable[object]) -> tuple[str, ...]:
    """Return the types of an error's details, with their reasons and quota descriptions."""
    found: list[str] = []
    for detail in map(_unpacked, details):
        found.append(type(detail).__name__)
        found.append(str(getattr(detail, "reason", "")))
        found += [str(getattr(one, "description", "")) for one in getattr(detail, "violations", ())]
    return tuple(filter(None, found))


def _unpacked(detail: object) -> object:
    """Return the message in an ``Any`` if its type is relevant, else the detail itself."""
    for kind in (error_details_pb2.QuotaFailure, error_details_pb2.ErrorInfo):
        if str(getattr(detail, "type_url", "")).endswith(f"google.rpc.{kind.__name__}"):
            return kind.FromString(getattr(detail, "value", b""))
    return detail


def is_loopback(endpoint: str) -> bool:
    """Return whether ``host:port`` is on this computer."""
    host = endpoint.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
