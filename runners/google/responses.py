"""Converts the client library's answers and exceptions to provider errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from google.api_core import exceptions as api
from google.auth import exceptions as auth
from google.cloud import compute_v1
from google.protobuf import json_format
from requests import exceptions as http

from orchestrator.domain.machine import (
    CredentialsError,
    Extent,
    ProviderError,
    ProviderUnavailableError,
)
from runners.google.errors import error_rule
from runners.provider_context import plain_words

T = TypeVar("T")
READ_TIMEOUT_S, WRITE_TIMEOUT_S = 20.0, 60.0
_ATTEMPTS = 2
_SIGN_IN = (
    "set GOOGLE_APPLICATION_CREDENTIALS to a service account's key file, or sign in by "
    "`gcloud auth application-default login`"
)


class AlreadyThereError(Exception):
    """409: a resource of that name exists; it may be Seatrial's."""


class NotThereError(Exception):
    """404: no resource of that name exists, or not yet."""


def create(what: str, call: Callable[[], T]) -> T:
    """Send a request that changes state, exactly once.

    Args:
        what: The request and its place, for a person.
        call: The client's method.

    Raises:
        AlreadyThereError: The name is taken.
        NotThereError: The resource to change does not exist.
        ProviderError: Any other failure; its type determines the next step.
    """
    try:
        return call()
    except api.Conflict as error:
        if _code(error).replace("_", "").lower() in ("alreadyexists", "resourcealreadyexists", ""):
            raise AlreadyThereError(what) from error
        raise of_exception(what, error) from error
    except api.NotFound as error:
        raise NotThereError(_words(error)) from error
    except _FOREIGN as error:
        raise of_exception(what, error) from error


def read(what: str, call: Callable[[], T]) -> T:
    """Send a read request, twice at most. Raises as `create` does."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return create(what, call)
        except ProviderUnavailableError as error:
            if error.extent is Extent.PROJECT:  # throttled: asking at once makes it worse
                raise
    return create(what, call)


def listed(what: str, call: Callable[[], T]) -> T:
    """Send a list request, for which a 404 means that the project is missing.

    Raises:
        ProviderError: Its type determines the next step.
    """
    try:
        return read(what, call)
    except NotThereError as error:
        raise of_missing(what, error) from error


def is_there(what: str, call: Callable[[], object]) -> bool:
    """Return whether a resource exists, by the call that reads it. Raises ProviderError."""
    try:
        read(what, call)
    except NotThereError:
        return False
    return True


def delete(what: str, call: Callable[[], object]) -> None:
    """Send a request to delete; a missing resource is no error. Raises ProviderError."""
    try:
        create(what, call)
    except NotThereError:
        return
    except AlreadyThereError as error:  # a conflict: something else is being done to it
        raise ProviderUnavailableError(
            f"{what}: Compute Engine is at work on it; repeat it", code="conflict"
        ) from error


def of_exception(what: str, error: Exception) -> ProviderError:
    """Return the provider error of a client library's exception."""
    if isinstance(error, api.GoogleAPICallError):
        status = int(error.code or 0)
        return _error(what, _code(error), _words(error), status, _request_id(error))
    if isinstance(error, auth.TransportError):
        return _unanswered(what, error)
    if isinstance(error, auth.GoogleAuthError):
        return CredentialsError(
            f"{what}: no usable Google credentials: {plain_words(str(error))}; {_SIGN_IN}",
            code=type(error).__name__,
            extent=Extent.PROJECT,
        )
    return _unanswered(what, error)


def of_missing(what: str, missing: NotThereError) -> ProviderError:
    """Return the provider error of a 404 for another resource than the requested one."""
    cause = missing.__cause__
    return of_exception(what, cause if isinstance(cause, Exception) else missing)


def of_operation(what: str, operation: compute_v1.Operation) -> ProviderError | None:
    """Return the error of a failed operation; None if it did not fail."""
    errors = list(operation.error.errors)
    if not errors and not operation.http_error_status_code:
        return None
    code = errors[0].code if errors else operation.http_error_message
    said = "; ".join(each.message for each in errors if each.message)
    details = " ".join(_detail(each) for each in errors).strip()
    words = " ".join(part for part in (said or operation.http_error_message, details) if part)
    status = int(operation.http_error_status_code)
    return _error(f"{what} (operation {operation.name})", code, words, status, "")


def is_done(operation: compute_v1.Operation) -> bool:
    """Return whether the operation is complete."""
    return operation.status == compute_v1.Operation.Status.DONE


def _error(what: str, code: str, words: str, status: int, request_id: str) -> ProviderError:
    told = error_rule(code, words, status=status)
    said = f"{what}: Google answered {code or status}: {plain_words(words)}"
    if request_id:
        said = f"{said} (request {request_id})"
    return told.error(f"{said}; {told.advice}", code=code or str(status), extent=told.extent)


def _unanswered(what: str, error: Exception) -> ProviderUnavailableError:
    return ProviderUnavailableError(
        f"{what}: no usable answer from Google ({type(error).__name__}: "
        f"{plain_words(str(error))}); whether it was done is not known",
        code=type(error).__name__,
    )


def _code(error: api.GoogleAPICallError) -> str:
    # HTTP answers carry dicts with a reason, operations carry messages with a code.
    for each in _errors(error):
        code = each.get("reason") if isinstance(each, dict) else getattr(each, "code", "")
        if code:
            return str(code)
    return str(error.reason or "")


def _errors(error: api.GoogleAPICallError) -> Iterable[object]:
    found = error.errors
    return found if isinstance(found, list | tuple) else ()


def _words(error: api.GoogleAPICallError) -> str:
    return str(error.message or error)


def _request_id(error: api.GoogleAPICallError) -> str:
    headers = getattr(error.response, "headers", None)
    return str(headers.get("x-goog-request-id", "")) if headers is not None else ""


def _detail(error: compute_v1.Errors) -> str:
    infos = (each.quota_info for each in error.error_details)
    return " ".join(f"{info.metric_name} limit {info.limit:g}" for info in infos if info.limit_name)


_FOREIGN = (
    api.GoogleAPIError,
    auth.GoogleAuthError,
    http.RequestException,
    json_format.ParseError,
    OSError,
)
"""Exceptions of the client library; an HTML page with status 200 is a ParseError."""


UNLIMITED = 10**12
"""A value for unlimited: more than any launch uses."""


def limit_of(stated: float) -> int:
    """Return a service's limit; a negative one, usually -1, means unlimited."""
    return UNLIMITED if stated < 0 else int(stated)
