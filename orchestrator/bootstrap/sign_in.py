"""How people sign in on the dashboard, from the settings."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

from orchestrator.adapters.clock import SystemClock
from orchestrator.application.context import SignInPorts
from orchestrator.application.ports.identity_provider import IdentityProvider, is_safe
from orchestrator.cli.errors import RefusedError
from orchestrator.config import Settings, SettingsError, read_setting
from orchestrator.dashboard import urls
from orchestrator.domain.caller_identity import SessionLimits
from orchestrator.extras import MissingExtraError, require

_NEEDED = {
    "client_id": "the client that the issuer knows this controller as",
    "roles": "which groups may do what: release-managers=gate,*=read",
}


def sign_in_ports(settings: Settings) -> SignInPorts:
    """Return the limits of sessions, and the issuer if one is configured. Raises RefusedError."""
    limits = SessionLimits(
        timedelta(hours=settings.session_hours), timedelta(minutes=settings.session_idle_minutes)
    )
    ports = SignInPorts(
        limits,
        roles=settings.oidc_roles,
        public_url=_as_browsers_name_it(settings.public_url or ""),
        project=settings.project if settings.projects else "",
        mark=settings.mark,
    )
    if settings.oidc_issuer is None:
        _refuse_without_issuer(settings)
        return ports
    return replace(ports, issuer=_issuer(settings, ports.public_url))


def _as_browsers_name_it(url: str) -> str:
    """Return the URL as browsers write its host: lower case, without the default port."""
    parts = urlsplit(url)
    default = {"https": ":443", "http": ":80"}.get(parts.scheme, "")
    return parts._replace(netloc=parts.netloc.lower().removesuffix(default)).geturl()


def public_host(settings: Settings) -> tuple[str, ...]:
    """Return the host that an issuer sends browsers back to; empty without an issuer or an URL."""
    host = urlsplit(settings.public_url or "").hostname
    return (host,) if host and settings.oidc_issuer else ()


def _refuse_without_issuer(settings: Settings) -> None:
    names = ("client_id", "client_secret", "client_secret_file", "roles")
    given = [name for name in names if getattr(settings, f"oidc_{name}")]
    if given:
        raise RefusedError(
            f"SEATRIAL_OIDC_{given[0].upper()} is set, and SEATRIAL_OIDC_ISSUER is not: name the"
            " issuer, or unset the other"
        )


def _issuer(settings: Settings, public_url: str) -> IdentityProvider:
    issuer = settings.oidc_issuer or ""
    _check_address("SEATRIAL_OIDC_ISSUER", issuer)
    parts = urlsplit(issuer)
    if parts.query or parts.fragment:
        raise RefusedError(f"SEATRIAL_OIDC_ISSUER has a query or a fragment: {issuer}")
    for name, what in _NEEDED.items():
        is_of_others = name == "roles" and settings.projects
        if not (getattr(settings, f"oidc_{name}") or is_of_others):
            raise RefusedError(
                f"SEATRIAL_OIDC_ISSUER needs SEATRIAL_OIDC_{name.upper()}: {what}"
                " (docs/how-to/sign-in.md)"
            )
    if not public_url:
        raise RefusedError(
            "SEATRIAL_OIDC_ISSUER needs SEATRIAL_PUBLIC_URL: the issuer sends browsers back to"
            f" {urls.SIGNED_IN_AT_ISSUER} below it (docs/how-to/sign-in.md)"
        )
    _check_address("SEATRIAL_PUBLIC_URL", public_url)
    if urlsplit(public_url).path:
        raise RefusedError(
            f"SEATRIAL_PUBLIC_URL must have no path, since the pages are at the root, and is"
            f" {public_url}"
        )
    if "openid" not in settings.oidc_scopes.split():
        raise RefusedError("SEATRIAL_OIDC_SCOPES must have `openid` among its scopes")
    try:
        require("oidc", "SEATRIAL_OIDC_ISSUER")
    except MissingExtraError as error:
        raise RefusedError(str(error)) from error
    return _connected(settings, issuer, public_url)


def _connected(settings: Settings, issuer: str, public_url: str) -> IdentityProvider:
    from orchestrator.adapters.openid_connect import (  # noqa: PLC0415 (an extra's libraries)
        IssuerSettings,
        OpenIdConnect,
    )

    given = IssuerSettings(
        issuer=issuer,
        client_id=settings.oidc_client_id or "",
        client_secret=_client_secret(settings),
        redirect_uri=public_url + urls.SIGNED_IN_AT_ISSUER,
        after_logout=public_url + urls.SIGN_IN,
        scopes=settings.oidc_scopes,
        groups_claim=settings.oidc_groups_claim,
    )
    return OpenIdConnect(given, SystemClock())


def _check_address(name: str, url: str) -> None:
    if not is_safe(url):
        raise RefusedError(
            f"{name} must begin with https:// where people sign in at an issuer (http:// only on"
            f" this computer's loopback), and is {url}"
        )


def _client_secret(settings: Settings) -> str:
    """Return the OpenID Connect client's secret; empty for a public client. Raises RefusedError."""
    file: Path | None = settings.oidc_client_secret_file
    if file is None:
        given = settings.oidc_client_secret
        return given.get_secret_value() if given else ""
    if settings.oidc_client_secret is not None:
        raise RefusedError(
            "SEATRIAL_OIDC_CLIENT_SECRET_FILE and SEATRIAL_OIDC_CLIENT_SECRET are both set: leave"
            " one out"
        )
    try:
        return read_setting("SEATRIAL_OIDC_CLIENT_SECRET_FILE", file)
    except SettingsError as error:
        raise RefusedError(str(error)) from None
