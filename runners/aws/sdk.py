"""The only module that uses boto3's clients and handles its exceptions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import boto3
import botocore.session
from botocore import exceptions as sdk_errors
from botocore.config import Config
from botocore.loaders import Loader
from botocore.parsers import ResponseParserError

from orchestrator.domain.machine import (
    ConfigError,
    CredentialsError,
    ProviderError,
    ProviderUnavailableError,
)
from runners.aws.errors import Ec2Refusal, error_of
from runners.provider_context import plain_words

Answer = dict[str, Any]
"""A response as boto3 returns it: nested, with the API's names."""

AWS_HOSTS = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws")
CONNECT_TIMEOUT_S = 5
READ_TIMEOUT_S = 20
_READING = Config(
    connect_timeout=CONNECT_TIMEOUT_S,
    read_timeout=READ_TIMEOUT_S,
    retries={"mode": "standard", "total_max_attempts": 2},
)
# The SDK repeats capacity errors too, for minutes: what creates is asked once, and the caller
# decides.
_CREATING = Config(
    connect_timeout=CONNECT_TIMEOUT_S,
    read_timeout=READ_TIMEOUT_S,
    retries={"mode": "standard", "total_max_attempts": 1},
)
# A function is asked once, and may work for as long as its own limit.
_CALLING = _CREATING.merge(Config(read_timeout=300))
_STALE = frozenset({"ExpiredToken", "ExpiredTokenException"})
_NO_CREDENTIALS = (
    sdk_errors.NoCredentialsError,
    sdk_errors.PartialCredentialsError,
    sdk_errors.CredentialRetrievalError,
    sdk_errors.ProfileNotFound,
    sdk_errors.SSOError,
    sdk_errors.TokenRetrievalError,
)
_SIGNS = frozenset(
    {
        "aws_access_key_id",
        "credential_process",
        "role_arn",
        "sso_session",
        "sso_start_url",
        "web_identity_token_file",
        "login_session",
    }
)
"""Keys of a profile in the configuration file that lead to credentials."""
_READS = ("Describe", "Get")
"""Prefixes of operations that change nothing."""
_WRONG = (sdk_errors.ParamValidationError, sdk_errors.InvalidRegionError)


class AwsAccount:
    """Calls AWS; raises only `ProviderError`. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._clients: dict[tuple[str, str, bool], Any] = {}
        self._session: Any = None

    def read(
        self, service: str, region: str, operation: str, /, *, what: str = "", **parameters: object
    ) -> Answer:
        """Call an idempotent operation; the SDK repeats it once.

        Args:
            service: ``ec2``.
            region: ``us-east-1``.
            operation: boto3's name of the operation, ``describe_instances``.
            what: The resource, for the error's message.
            parameters: Parameters, by the API's names.
        """
        asked = _answer_of(operation, what, region)
        return self._ask(
            lambda: getattr(self._client(service, region), operation)(**parameters), asked
        )

    def create(
        self, service: str, region: str, operation: str, /, *, what: str = "", **parameters: object
    ) -> Answer:
        """Send a request like `read`, but at most once."""
        asked = _answer_of(operation, what, region)
        return self._ask(
            lambda: getattr(self._client(service, region, creating=True), operation)(**parameters),
            asked,
        )

    def pages(
        self, service: str, region: str, operation: str, key: str, /, **parameters: object
    ) -> Iterator[Answer]:
        """Yield every entry below `key`, over all pages of the answer."""

        def entries() -> Answer:
            client = self._client(service, region)
            pages = client.get_paginator(operation).paginate(**parameters)
            return {key: [entry for page in pages for entry in page.get(key, ())]}

        yield from self._ask(entries, _answer_of(operation, "", region))[key]

    def wait(self, service: str, region: str, waiter: str, /, **parameters: object) -> None:
        """Poll until boto3's waiter succeeds. Raises ProviderError at its limit."""

        def until() -> Answer:
            self._client(service, region).get_waiter(waiter).wait(**parameters)
            return {}

        self._ask(until, _answer_of(waiter, "", region))

    def region(self) -> str:
        """Return the region of the environment or the profile; empty if none is set."""
        with self._lock:
            self._session = self._session or _session()
            return str(self._session.region_name or "")

    def is_simulated(self, region: str) -> bool:
        """Return whether another server than AWS answers for EC2."""
        endpoint = self._ask(
            lambda: {"url": self._client("ec2", region).meta.endpoint_url}, "the endpoint of EC2"
        )
        host = urlsplit(str(endpoint["url"])).hostname or ""
        return not host.endswith(AWS_HOSTS)

    def has_credentials(self) -> bool:
        """Return whether credentials are available, without network access or a new process."""
        core = _core()
        try:
            profile = core.get_scoped_config()
        except sdk_errors.ProfileNotFound:
            return True  # a profile was named: the first call reports the problem
        finder = core.get_component("credential_provider")
        files = (finder.get_provider(kind) for kind in ("env", "shared-credentials-file"))
        return bool(_SIGNS.intersection(profile)) or any(each.load() for each in files)

    def _ask(self, call: Callable[[], Answer], requested: str) -> Answer:
        try:
            return _typed(call, requested)
        except CredentialsError as error:
            if error.code not in _STALE:
                raise
        # Credentials are read again, once: a session of its user may have been renewed meanwhile.
        with self._lock:
            self._session = None
            self._clients.clear()
        return _typed(call, requested)

    def _client(self, service: str, region: str, *, creating: bool = False) -> Any:  # noqa: ANN401
        with self._lock:
            client = self._clients.get((service, region, creating))
            if client is None:
                self._session = self._session or _session()
                config = _CREATING if creating else _READING
                config = _CALLING if service == "lambda" else config
                try:
                    client = self._session.client(service, region_name=region, config=config)
                except ValueError as error:
                    raise ConfigError(f"{error}; see AWS_ENDPOINT_URL and the profile") from error
                self._clients[service, region, creating] = client
            return client


@cache
def _loader() -> Any:  # noqa: ANN401
    return Loader()


def _core() -> Any:  # noqa: ANN401
    core = botocore.session.Session()
    # It reads the description of EC2 from files, for half a second: once for all sessions.
    core.register_component("data_loader", _loader())
    return core


def _session() -> Any:  # noqa: ANN401
    return boto3.session.Session(botocore_session=_core())


def _typed(call: Callable[[], Answer], requested: str) -> Answer:
    try:
        return call()
    except sdk_errors.ClientError as error:
        raise error_of(_refusal(error.response), requested=requested) from error
    except _NO_CREDENTIALS as error:
        raise CredentialsError(
            f"{requested} was not sent: {error}; configure credentials as the AWS CLI finds them",
            code=type(error).__name__,
        ) from error
    except _WRONG as error:
        raise ConfigError(
            f"{requested} was not sent: {error}", code=type(error).__name__
        ) from error
    except (sdk_errors.BotoCoreError, ResponseParserError) as error:
        raise _unknown_outcome(error, requested) from error


def _refusal(response: Answer) -> Ec2Refusal:
    said, about = response.get("Error", {}), response.get("ResponseMetadata", {})
    return Ec2Refusal(
        code=str(said.get("Code", "")),
        words=str(said.get("Message", "")),
        request_id=str(about.get("RequestId", "")),
        status=int(about.get("HTTPStatusCode", 400)),
    )


def _unknown_outcome(error: Exception, requested: str) -> ProviderError:
    doubt = "" if requested.startswith(_READS) else ", and may have been carried out"
    return ProviderUnavailableError(
        f"{requested} had no usable answer{doubt}: {plain_words(str(error))}",
        code=type(error).__name__,
    )


def _answer_of(operation: str, what: str, region: str) -> str:
    name = "".join(word.capitalize() for word in operation.split("_"))
    return f"{name} {what} in {region}" if what else f"{name} in {region}"
