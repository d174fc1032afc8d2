"""Settings from environment variables; nothing else reads them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from decimal import Decimal
from ipaddress import IPv4Network, ip_network
from pathlib import Path
from typing import get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from orchestrator.domain.caller_identity import Scope
from orchestrator.domain.commit import Commit
from orchestrator.domain.document_problems import SCALARS

PREFIX = "SEATRIAL_"
_PROJECT = re.compile(r"[a-z][a-z0-9-]{0,39}")
_FURTHER = re.compile(r"(?=.{1,40}$)[a-z][a-z0-9]*(-[a-z0-9]+)*")
"""Names of further projects, such that no project's variable prefix begins with another's."""
OWN = frozenset(
    {
        *("home", "project", "database_url", "database_url_file", "admin_token_file"),
        *("signing_key_file", "budget_day_usd", "budget_month_usd", "budget_project_usd"),
        "budget_untrusted_usd",
        *("local_jobs_as", "job_secrets", "trusted_repositories", "tls_cert", "tls_key"),
    }
)
"""Settings for which a further project has its own variables; it shares all other settings."""
_FIXED = ("home", "project")
"""Settings that follow from a further project's name, so that they have no variable."""
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
"""Minimum prefix length: 10.0.0.0/8 is the largest private network."""
_OFF = ("", "0", "false", "no", "off")


class SettingsError(ValueError):
    """An environment variable is invalid; the text is one sentence that names it."""


class Settings(BaseModel):
    """Settings of the environment. Read them with `load`."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    home: Path = Field(default=Path("var"), validate_default=True)
    """The home folder; absolute."""
    project: str = "seatrial"
    """Tag value that controllers of one project share."""
    projects: tuple[str, ...] = ()
    """Comma-separated further projects that `serve` serves, each with a home and a database."""
    database_url: SecretStr | None = None
    """URL of the database; None uses the embedded database in the home."""
    database_url_file: Path | None = None
    """File with the database's URL, for containers that get secrets as files."""
    url: str | None = None
    """URL of a remote controller, instead of the home's own."""
    token: SecretStr | None = None
    """Token for the remote controller."""
    admin_token_file: Path | None = None
    """File with the first token of a new database."""
    signing_key_file: Path | None = None
    """File with the key that signs verdicts."""
    tls_cert: Path | None = None
    """Certificate of the port, with its chain (PEM); with it the port accepts HTTPS only."""
    tls_key: Path | None = None
    """Private key of the certificate, if it is in another file."""
    ingress_cidr: str | None = None
    """Network that may reach port 22 of rented machines."""
    gcp_project: str | None = None
    """Google Cloud project in which machines are rented."""
    gcp_compute_endpoint: str | None = None
    """Address of an emulated or private Compute Engine, ``http://host:port``."""
    gcp_tpu_endpoint: str | None = None
    """Address of an emulated or private TPU API, ``host:port``."""
    gcp_billing_endpoint: str | None = None
    """Address of an emulated or private billing API, ``http://host:port``."""
    gcp_quotas_endpoint: str | None = None
    """Address of an emulated or private quota API, ``http://host:port``."""
    gcp_account_endpoint: str | None = None
    """Address of the emulated or private APIs of `bootstrap` and `doctor`, ``http://host:port``."""
    budget_day_usd: Decimal | None = Field(default=None, ge=0, max_digits=12)
    """Budget for machines rented on one UTC day."""
    budget_month_usd: Decimal | None = Field(default=None, ge=0, max_digits=12)
    """Budget for machines rented in one UTC month."""
    budget_project_usd: Decimal | None = Field(default=None, ge=0, max_digits=12)
    """Budget for all machines in the database."""
    budget_untrusted_usd: Decimal | None = Field(default=None, ge=0, max_digits=12)
    """Budget for machines of untrusted code, rented on one UTC day; None refuses such runs."""
    public_hosts: tuple[str, ...] = ()
    """Comma-separated host names under which the controller is reached."""
    trusted_proxies: tuple[str, ...] = ()
    """Comma-separated addresses and networks of proxies whose reported client address is trusted.
    """
    public_url: str | None = None
    """Public URL for links in notifications."""
    oidc_issuer: str | None = None
    """OpenID Connect issuer at which people sign in on the dashboard."""
    oidc_client_id: str | None = None
    """Id of the controller's client at the issuer."""
    oidc_client_secret: SecretStr | None = None
    """Secret of the controller's client; None for a public client."""
    oidc_client_secret_file: Path | None = None
    """File with the client's secret."""
    oidc_scopes: str = "openid profile email"
    """OAuth scopes to ask for, separated by spaces."""
    oidc_groups_claim: str = "groups"
    """Claim of the ID token with the groups of a person."""
    oidc_roles: tuple[tuple[str, Scope], ...] = ()
    """Roles of groups in this project, from comma-separated ``GROUP=SCOPE`` or
    ``GROUP=PROJECT:SCOPE``.

    The group ``*`` is everybody, and the project ``*`` is every project.
    """
    session_hours: float = Field(default=8.0, gt=0, le=720)
    """Hours after which a browser has to sign in again."""
    session_idle_minutes: float = Field(default=60.0, gt=0, le=43_200)
    """Minutes without a request after which a browser has to sign in again."""
    local_jobs_as: str | None = None
    """Local account that runs jobs of the provider ``local``."""
    job_secrets: tuple[str, ...] = ()
    """Comma-separated environment variables that a reachable controller passes to jobs."""
    trusted_repositories: tuple[str, ...] = ()
    """Comma-separated git URLs or prefixes that a reachable controller may read."""
    contact_timeout_s: float = Field(default=180.0, gt=0)
    """Seconds without contact after which a running attempt is lost."""
    http_headers_s: float = Field(default=10.0, gt=0)
    """Maximum seconds for a client's request headers, and for the TLS handshake."""
    http_pause_s: float = Field(default=60.0, gt=0)
    """Maximum pause within a request body, in seconds."""
    http_connections: int = Field(default=512, ge=2)
    """Maximum connections to a port; half of them from one address."""
    http_requests_a_minute: int = Field(default=3000, ge=1)
    """Maximum requests to a port in a minute of one credential, or of one address without a
    credential.
    """
    http_guesses_a_minute: int = Field(default=30, ge=1)
    """Maximum refused credentials of one address in a minute; above it a port answers 429."""
    keep_logs_days: int = Field(default=180, ge=0, le=36_500)
    """Days that logs and raw events of a finished run are kept; 0 keeps them for ever."""
    keep_artifacts_days: int = Field(default=365, ge=0, le=36_500)
    """Days that artifacts and rendered reports of a finished run are kept; 0 is for ever."""
    keep_payloads_days: int = Field(default=365, ge=0, le=36_500)
    """Days that payloads and wheels are kept after the last run with them; 0 is for ever."""
    keep_history_days: int = Field(default=365, ge=0, le=36_500)
    """Days that firings, deliveries, unapproved waivers and idempotency keys are kept after their
    end; 0 is for ever.
    """
    keep_caches_days: int = Field(default=14, ge=0, le=36_500)
    """Days that wheelhouses, and the engine's records of finished cells, are kept."""
    ci: bool = False
    """Whether the command runs in a CI, where an interrupt cancels the run."""

    @field_validator(
        *("home", "admin_token_file", "signing_key_file", "database_url_file"),
        *("tls_cert", "tls_key", "oidc_client_secret_file"),
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

    @field_validator(
        *("public_hosts", "trusted_proxies", "trusted_repositories", "job_secrets", "projects"),
        mode="before",
    )
    @classmethod
    def _names(cls, value: object) -> tuple[str, ...]:
        return tuple(name.strip() for name in str(value).split(",") if name.strip())

    @field_validator("trusted_proxies")
    @classmethod
    def _proxies(cls, proxies: tuple[str, ...]) -> tuple[str, ...]:
        for proxy in proxies:
            try:
                ip_network(proxy)
            except ValueError as error:
                raise ValueError("must be addresses or networks, such as 10.0.0.0/24") from error
        return proxies

    @field_validator("projects")
    @classmethod
    def _further(cls, projects: tuple[str, ...]) -> tuple[str, ...]:
        is_fit = all(_FURTHER.fullmatch(name) for name in projects)
        if not is_fit or len(set(projects)) < len(projects):
            raise ValueError(
                "must be different names, separated by commas, of at most 40 lower-case letters,"
                " digits and single '-' between them"
            )
        return projects

    @field_validator("oidc_roles", mode="before")
    @classmethod
    def _roles(cls, value: object, info: ValidationInfo) -> tuple[tuple[str, Scope], ...]:
        mine, further = info.data.get("project", ""), info.data.get("projects", ())
        here = ("*", mine) if mine in further else ("*", mine, "")
        roles = [_role(one) for one in str(value).split(",") if one.strip()]
        unknown = sorted({project for _, project, _ in roles} - {*here, *further})
        if unknown and mine not in further:
            raise ValueError(f"must name projects of SEATRIAL_PROJECTS, not {unknown[0]}")
        return tuple((group, scope) for group, project, scope in roles if project in here)

    @field_validator("ingress_cidr")
    @classmethod
    def _network(cls, cidr: str | None) -> str | None:
        return _ingress(cidr) if cidr else cidr

    @field_validator("ci", mode="before")
    @classmethod
    def _flag(cls, value: object) -> bool:
        return str(value).strip().lower() not in _OFF

    @property
    def is_further(self) -> bool:
        """Whether this project is one of `projects`, and not the one that the home was made for."""
        return self.project in self.projects

    @property
    def mark(self) -> str:
        """Return the part after `seatrial_` in a further project's secrets; else empty."""
        return f"{self.project}." if self.is_further else ""

    def secret(self, name: str) -> str | None:
        """Return the secret of a name in a matrix or a channel; None if there is none.

        A further project has the secrets with its prefix; the first project has all others.
        """
        variable = f"{_prefix(self)}{name}"
        others = (prefix_of(one) for one in self.projects if one != self.project)
        return None if variable.startswith(tuple(others)) else os.environ.get(variable)

    def job_secret(self, name: str) -> str | None:
        """Return a secret that `job_secrets` lists; None for an unlisted or missing one."""
        return self.secret(name) if name in self.job_secrets else None

    def for_providers(self) -> dict[str, str]:
        """Return the settings that providers read, by name, without unset ones."""
        names = ("project", "ingress_cidr", "gcp_project", *GCP_ENDPOINTS)
        said = {name: getattr(self, name) for name in names}
        return {name: str(value) for name, value in said.items() if value}


def load(project: str = "") -> Settings:
    """Return the settings of a further project, else those of the first project.

    They are those of `project` (default: SEATRIAL_PROJECT) if SEATRIAL_PROJECTS lists it.
    Raises SettingsError.
    """
    first = _read({name: _variable(name) for name in Settings.model_fields}, {})
    fixed = (f"{prefix_of(one)}{_variable(own)}" for one in first.projects for own in _FIXED)
    given = next((variable for variable in fixed if os.environ.get(variable)), None)
    if given:
        raise SettingsError(
            f"{given} cannot be set: a further project takes its name from SEATRIAL_PROJECTS and"
            " its home is SEATRIAL_HOME/projects/NAME"
        )
    name = project or first.project
    if name not in first.projects:
        return first
    own = {"project": name, "home": str(first.home / "projects" / name)}
    variables = {
        field: f"{prefix_of(name) if field in OWN else ''}{_variable(field)}"
        for field in Settings.model_fields
    }
    return _read(variables, own)


def prefix_of(project: str) -> str:
    """Return the prefix of the names of a further project's variables."""
    return f"{project.upper().replace('-', '_')}__"


def _prefix(settings: Settings) -> str:
    return prefix_of(settings.project) if settings.is_further else ""


def _read(variables: Mapping[str, str], fixed: Mapping[str, object]) -> Settings:
    said = {field: os.environ.get(variable) for field, variable in variables.items()}
    given: dict[str, object] = {field: value for field, value in said.items() if value} | {**fixed}
    try:
        settings = Settings.model_validate(given)
        if settings.database_url_file is None:
            return settings
        name = variables["database_url_file"]
        if settings.database_url is not None:
            other = variables["database_url"]
            raise SettingsError(f"{name} and {other} are both set: leave one out")
        url = read_setting(name, settings.database_url_file)
        return Settings.model_validate(given | {"database_url": url})
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        field = str(first["loc"][0])
        raise SettingsError(_fault(field, variables[field], first["msg"], first["input"])) from None


_LIMITS = (("gt", "more than"), ("ge", "at least"), ("le", "at most"))
_QUOTED = 60


def _fault(name: str, variable: str, message: str, value: object) -> str:
    """Return a sentence about the invalid value; values that may hold a secret are not quoted."""
    field = Settings.model_fields[name]
    kind = next(one for one in (*get_args(field.annotation), field.annotation) if one is not None)
    must = message.removeprefix("Value error, ")
    if kind in (int, float, Decimal):
        words = [SCALARS[kind]]
        for limit in field.metadata:
            found = ((says, getattr(limit, key, None)) for key, says in _LIMITS)
            words += [f"{says} {bound}" for says, bound in found if bound is not None]
            digits = getattr(limit, "max_digits", None)
            words += [f"of at most {digits} digits"] if digits else []
        must = f"must be {', '.join(words)}"
    text = str(value)
    is_shown = kind is not SecretStr and not any(sign in text for sign in ("://", "@"))
    quoted = f", not {text[:_QUOTED]!r}" if is_shown else ""
    return f"{variable} {must}{quoted}"


def _variable(field: str) -> str:
    """Return the environment variable of a field; ``CI`` has no prefix."""
    return "CI" if field == "ci" else f"{PREFIX}{field.upper()}"


def read_setting(name: str, path: Path) -> str:
    """Return the content of the file that the variable `name` names. Raises SettingsError."""
    try:
        value = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError) as error:
        said = getattr(error, "strerror", None) or "not text"
        raise SettingsError(f"{name} cannot be read: {path}: {said}") from None
    if not value:
        raise SettingsError(f"{name} is empty: {path}")
    return value


_SHA = re.compile("[0-9a-f]{7,64}")
_CI_COMMIT: Mapping[str, tuple[str, ...]] = {
    "sha": ("GITHUB_SHA", "CI_COMMIT_SHA", "GIT_COMMIT", "BUILDKITE_COMMIT", "CIRCLE_SHA1"),
    "branch": (
        *("GITHUB_HEAD_REF", "GITHUB_REF_NAME", "CI_MERGE_REQUEST_SOURCE_BRANCH_NAME"),
        *("CI_COMMIT_REF_NAME", "GIT_BRANCH", "BUILDKITE_BRANCH", "CIRCLE_BRANCH"),
    ),
    "author": ("CI_COMMIT_AUTHOR", "BUILDKITE_BUILD_AUTHOR", "GITHUB_ACTOR", "CIRCLE_USERNAME"),
}
"""Variables of GitHub, GitLab, Jenkins, Buildkite and CircleCI; the first one that is set is used.
"""


def ci_commit() -> Commit:
    """Return the commit in the CI's environment variables; empty outside of a CI."""
    said = {
        field: next((os.environ[name] for name in names if os.environ.get(name)), "")
        for field, names in _CI_COMMIT.items()
    }
    author = said["author"].partition(" <")[0]
    sha = said["sha"].lower()
    return Commit(sha=sha if _SHA.fullmatch(sha) else "", branch=said["branch"], author=author)


def _role(text: str) -> tuple[str, str, Scope]:
    """Return group, project (empty without one) and scope. Raises ValueError."""
    group, _, role = text.rpartition("=")
    project, _, scope = role.rpartition(":")
    return group.strip(), project.strip(), _scope(group, scope.strip())


def _scope(group: str, word: str) -> Scope:
    """Return the scope of that name. Raises ValueError for an empty group or an unknown scope."""
    if not group.strip() or word not in list(Scope):
        scopes = ", ".join(Scope)
        raise ValueError(
            f"must be GROUP=SCOPE, separated by commas, with one of {scopes} as SCOPE:"
            " release-managers=gate,*=read"
        )
    return Scope(word)


def _ingress(cidr: str) -> str:
    """Return the network in the clouds' notation. Raises ValueError."""
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
