"""The only reader of the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from decimal import Decimal
from ipaddress import IPv4Network
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator

from orchestrator.domain.commit import Commit

PREFIX = "SEATRIAL_"
_PROJECT = re.compile(r"[a-z][a-z0-9-]{0,39}")
_ACCOUNT = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")
_DATABASES = ("postgresql://", "postgresql+psycopg://", "postgres://", "sqlite:///")
GCP_ENDPOINTS = (
    "gcp_compute_endpoint",
    "gcp_tpu_endpoint",
    "gcp_billing_endpoint",
    "gcp_quotas_endpoint",
    "gcp_account_endpoint",
)
WIDEST_INGRESS = 8
"""Of the prefix, in bits: 10.0.0.0/8 is the largest network that is anybody's own."""
_OFF = ("", "0", "false", "no", "off")


class ConfigError(ValueError):
    """A variable of the environment is unusable; the text is one sentence that names it."""


class Settings(BaseModel):
    """What the environment says. Read it with `load`."""

    model_config = ConfigDict(frozen=True)

    home: Path = Field(default=Path("var"), validate_default=True)
    """Where everything is kept; absolute."""
    project: str = "seatrial"
    """The tag value that controllers of one project share."""
    database_url: SecretStr | None = None
    """None means the embedded database in the home."""
    database_url_file: Path | None = None
    """Holds that URL, with its password, as containers are handed secrets."""
    url: str | None = None
    """The controller to talk to, instead of the home's own."""
    token: SecretStr | None = None
    """For that controller."""
    admin_token_file: Path | None = None
    """Holds the first token of a fresh database."""
    signing_key_file: Path | None = None
    """Holds the key that verdicts are signed with."""
    tls_cert: Path | None = None
    """The certificate of the port, with its chain (PEM): it then speaks HTTPS only."""
    tls_key: Path | None = None
    """Its private key, where that is not in the same file."""
    ingress_cidr: str | None = None
    """Who may reach port 22 of rented machines."""
    gcp_project: str | None = None
    """The Google Cloud project that machines are rented in."""
    gcp_compute_endpoint: str | None = None
    """An emulated or private Compute Engine, ``http://host:port``."""
    gcp_tpu_endpoint: str | None = None
    """An emulated or private TPU API, ``host:port``."""
    gcp_billing_endpoint: str | None = None
    """As the Compute endpoint, for prices."""
    gcp_quotas_endpoint: str | None = None
    """As the Compute endpoint, for quotas."""
    gcp_account_endpoint: str | None = None
    """As the Compute endpoint, for what `bootstrap` and `doctor` ask of a project."""
    budget_day_usd: Decimal | None = Field(default=None, ge=0, max_digits=12)
    """What the machines that are rented on one day (UTC) may cost together."""
    budget_month_usd: Decimal | None = Field(default=None, ge=0, max_digits=12)
    """The same of a month."""
    budget_project_usd: Decimal | None = Field(default=None, ge=0, max_digits=12)
    """The same of everything that the database knows of."""
    public_hosts: tuple[str, ...] = ()
    """Names, separated by commas, under which a controller is reached from outside."""
    public_url: str | None = None
    """Where people reach it, for links in messages."""
    local_jobs_as: str | None = None
    """The account of this computer that jobs of the provider ``local`` run as."""
    job_secrets: tuple[str, ...] = ()
    """Variables of the environment, separated by commas, that a controller which others can reach
    hands to jobs."""
    trusted_repositories: tuple[str, ...] = ()
    """Addresses of git, or beginnings of them, separated by commas, that a controller which others
    can reach asks, whatever they are."""
    contact_timeout_s: float = Field(default=180.0, gt=0)
    """How long a running machine may not be heard before its attempt is given up."""
    http_headers_s: float = Field(default=10.0, gt=0)
    """How long a client of a port may take to send the headers of a request."""
    http_pause_s: float = Field(default=60.0, gt=0)
    """How long the body of a request may stand still."""
    http_connections: int = Field(default=512, ge=2)
    """Connections to a port at once; half of them from one address."""
    ci: bool = False
    """Nobody is watching: an interrupt cancels."""

    @field_validator(
        "home", "admin_token_file", "signing_key_file", "database_url_file", "tls_cert", "tls_key"
    )
    @classmethod
    def _absolute(cls, path: Path | None) -> Path | None:
        return path.expanduser().absolute() if path else path

    @field_validator("project")
    @classmethod
    def _tag_value(cls, project: str) -> str:
        if not _PROJECT.fullmatch(project):
            raise ValueError(
                "must be a lower-case letter followed by at most 39 letters, digits and '-',"
                " because it becomes a tag in every cloud"
            )
        return project

    @field_validator("local_jobs_as")
    @classmethod
    def _account(cls, name: str | None) -> str | None:
        if name and not _ACCOUNT.fullmatch(name):
            raise ValueError("must be the name of an account of this computer")
        return name

    @field_validator("database_url")
    @classmethod
    def _database(cls, url: SecretStr | None) -> SecretStr | None:
        if url and not url.get_secret_value().startswith(_DATABASES):
            raise ValueError("must begin with postgresql:// (or sqlite:///)")
        return url

    @field_validator("url", "public_url")
    @classmethod
    def _address(cls, url: str | None) -> str | None:
        if url and not re.match(r"https?://[^/\s]+", url):
            raise ValueError("must look like https://host:port")
        return url.rstrip("/") if url else url

    @field_validator("token")
    @classmethod
    def _header(cls, token: SecretStr | None) -> SecretStr | None:
        if token and not re.fullmatch("[!-~]+", token.get_secret_value()):
            raise ValueError("must be a token as it was printed: no spaces, no line ends")
        return token

    @field_validator("public_hosts", "trusted_repositories", "job_secrets", mode="before")
    @classmethod
    def _names(cls, value: object) -> tuple[str, ...]:
        return tuple(name.strip() for name in str(value).split(",") if name.strip())

    @field_validator("ingress_cidr")
    @classmethod
    def _network(cls, cidr: str | None) -> str | None:
        return _ingress(cidr) if cidr else cidr

    @field_validator("ci", mode="before")
    @classmethod
    def _flag(cls, value: object) -> bool:
        return str(value).strip().lower() not in _OFF

    def for_providers(self) -> dict[str, str]:
        """What providers are told, by name; without what is not set."""
        names = ("project", "ingress_cidr", "gcp_project", *GCP_ENDPOINTS)
        said = {name: getattr(self, name) for name in names}
        return {name: str(value) for name, value in said.items() if value}


def load() -> Settings:
    """Read the environment. Raises ConfigError."""
    said = {name: os.environ.get(_variable(name)) for name in Settings.model_fields}
    given: dict[str, object] = {name: value for name, value in said.items() if value}
    try:
        settings = Settings.model_validate(given)
        if settings.database_url_file is None:
            return settings
        url = _database_url(settings, settings.database_url_file)
        return Settings.model_validate(given | {"database_url": url})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        name = _variable(str(first["loc"][0]))
        raise ConfigError(f"{name} {_reason(first['msg'])}") from None


def _variable(field: str) -> str:
    """The variable of the environment that a field is read from; every CI sets ``CI``."""
    return "CI" if field == "ci" else f"{PREFIX}{field.upper()}"


def _database_url(settings: Settings, path: Path) -> str:
    """The database's URL from its file. Raises ConfigError."""
    name = _variable("database_url_file")
    if settings.database_url is not None:
        raise ConfigError(f"{name} and {PREFIX}DATABASE_URL are both set: leave one out")
    try:
        url = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError) as error:
        said = getattr(error, "strerror", None) or "not text"
        raise ConfigError(f"{name} cannot be read: {path}: {said}") from None
    if not url:
        raise ConfigError(f"{name} is empty: {path}")
    return url


_SHA = re.compile("[0-9a-f]{7,64}")
_CI_COMMIT: Mapping[str, tuple[str, ...]] = {
    "sha": ("GITHUB_SHA", "CI_COMMIT_SHA", "GIT_COMMIT", "BUILDKITE_COMMIT", "CIRCLE_SHA1"),
    "branch": (
        *("GITHUB_HEAD_REF", "GITHUB_REF_NAME", "CI_MERGE_REQUEST_SOURCE_BRANCH_NAME"),
        *("CI_COMMIT_REF_NAME", "GIT_BRANCH", "BUILDKITE_BRANCH", "CIRCLE_BRANCH"),
    ),
    "author": ("CI_COMMIT_AUTHOR", "BUILDKITE_BUILD_AUTHOR", "GITHUB_ACTOR", "CIRCLE_USERNAME"),
}
"""Variables of GitHub, GitLab, Jenkins, Buildkite and CircleCI; the first that is set counts."""


def ci_commit() -> Commit:
    """What the CI that this process runs in says of the commit; empty outside of one."""
    said = {
        field: next((os.environ[name] for name in names if os.environ.get(name)), "")
        for field, names in _CI_COMMIT.items()
    }
    author = said["author"].partition(" <")[0]
    sha = said["sha"].lower()
    return Commit(sha=sha if _SHA.fullmatch(sha) else "", branch=said["branch"], author=author)


def secret(name: str) -> str | None:
    """The value of one of a matrix's secrets, or None where the environment has none."""
    return os.environ.get(name)


def listed_secret(listed: Collection[str], name: str) -> str | None:
    """The same, of those that the operator has listed alone."""
    return secret(name) if name in listed else None


def _ingress(cidr: str) -> str:
    """The network, as the clouds write it. Raises ValueError."""
    try:
        network = IPv4Network(cidr.strip())
    except ValueError as error:
        raise ValueError(f"must be one IPv4 network such as 203.0.113.7/32: {error}") from None
    if network.prefixlen < WIDEST_INGRESS:
        raise ValueError(
            f"must be a /{WIDEST_INGRESS} or narrower, and {network} opens port 22 to the world;"
            " your own address is enough: 203.0.113.7/32"
        )
    return str(network)


def _reason(message: str) -> str:
    said = message.removeprefix("Value error, ")
    return said if said.startswith("must ") else f"is unusable: {said}"
