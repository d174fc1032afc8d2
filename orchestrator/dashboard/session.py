"""The signed-in viewer, from a session cookie or a token header; and protection of forms."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Request, Response
from starlette.concurrency import run_in_threadpool

from orchestrator.application.browser_sessions import NewSession, cookie_of
from orchestrator.application.context import Context
from orchestrator.application.credentials import project_of
from orchestrator.application.tokens import Credential, check_credential
from orchestrator.domain.caller_identity import Caller, Person, Scope, missing_scope
from orchestrator.domain.loopback import is_loopback

CSRF_FIELD = "csrf"
_NONCE_BYTES = 12
_RANK = list(Scope)


class SignedOutError(Exception):
    """No token was sent, or it is not valid."""


class NotAllowedError(Exception):
    """The token's scope does not allow the request."""


class ForeignFormError(Exception):
    """The form does not come from a page of this session."""


class UploadRefusedError(Exception):
    """The files of the form are larger than the limit."""


@dataclass(frozen=True, slots=True)
class Viewer:
    """The person or token behind a request."""

    caller: Caller
    credential: Credential

    @property
    def name(self) -> str:
        """Name of the caller, as approvals and waivers store it."""
        return self.caller.name

    @property
    def shown(self) -> str:
        """Name to show to the viewer."""
        return self.caller.shown

    @property
    def person(self) -> Person:
        """Name of the person who signs."""
        return self.caller.person

    @property
    def project(self) -> str:
        """Name of the viewer's project; empty for the first project."""
        return project_of(self.credential.secret)

    def may(self, needed: str) -> bool:
        """Return whether the caller's scope includes `needed`."""
        return _RANK.index(self.caller.scope) >= _RANK.index(Scope(needed))

    def csrf(self) -> str:
        """A CSRF value for forms, masked anew each time so that compressed sizes do not leak it."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return base64.urlsafe_b64encode(nonce + self._sealed(nonce)).decode("ascii")

    def has_made(self, value: str) -> bool:
        """Return whether a form's CSRF value belongs to this session."""
        try:
            raw = base64.urlsafe_b64decode(value.encode("ascii"))
        except ValueError:
            return False
        nonce, seal = raw[:_NONCE_BYTES], raw[_NONCE_BYTES:]
        return hmac.compare_digest(seal, self._sealed(nonce))

    def _sealed(self, nonce: bytes) -> bytes:
        return hmac.digest(self.credential.secret.encode(), b"csrf" + nonce, hashlib.sha256)


def viewer_of(context: Context, credential: Credential) -> Viewer | None:
    """Return the viewer of the token, or None."""
    caller = check_credential(context, credential) if credential.secret else None
    return None if caller is None else Viewer(caller, credential)


def _credential(request: Request) -> Credential:
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return Credential(given.strip())
    kept = request.cookies.get(cookie_of(request.headers.get("host", "")), "")
    return Credential(kept, is_session=True)


async def signed_in(request: Request) -> Viewer:
    """Return the viewer. Raises SignedOutError."""
    context: Context = request.app.state.context
    viewer = await run_in_threadpool(viewer_of, context, _credential(request))
    if viewer is None:
        raise SignedOutError
    # The page of a refusal has the navigation, too.
    request.state.viewer = viewer
    return viewer


ViewerDep = Annotated[Viewer, Depends(signed_in)]


UPLOAD_LIMIT_BYTES = 128 * 1024**2
"""Maximum bytes of all files of a form, which are kept in memory until they are packed."""
UPLOAD_FILES = 5_000


def needs(scope: Scope, *, uploads: bool = False) -> object:
    """Return a dependency that checks the scope and the form, and yields the viewer.

    Args:
        scope: What the token must allow.
        uploads: Whether the form may have many files, within the two limits.
    """

    async def allowed(request: Request, viewer: ViewerDep) -> Viewer:
        if not viewer.may(scope):
            raise NotAllowedError(missing_scope(viewer.caller, scope))
        await check_form(request, viewer, uploads=uploads)
        return viewer

    return Depends(allowed)


async def check_form(request: Request, viewer: Viewer, *, uploads: bool = False) -> None:
    """Reject a form that another site, or a page of another session, has sent.

    Raises ForeignFormError, or UploadRefusedError before a body that is too large is read.
    """
    check_site(request)
    if uploads:
        _check_size(request)
    form = await request.form(max_files=UPLOAD_FILES if uploads else 1)
    if not viewer.has_made(str(form.get(CSRF_FIELD, ""))):
        await form.close()
        raise ForeignFormError


def check_site(request: Request) -> None:
    """Reject a form that another site has sent. Raises ForeignFormError."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    origin = request.headers.get("origin")
    host = request.headers.get("host", "")
    is_ours = origin is None or origin.partition("://")[2] == host
    if site != "same-origin" or not is_ours:
        raise ForeignFormError


def _check_size(request: Request) -> None:
    announced = request.headers.get("content-length", "")
    if not announced.isdecimal() or int(announced[:19]) > UPLOAD_LIMIT_BYTES:
        raise UploadRefusedError(
            f"a page takes at most {UPLOAD_LIMIT_BYTES // 1024**2} MiB: `seatrial run` sends more"
        )


def keep(request: Request, response: Response, session: NewSession) -> None:
    """Set the session's cookie."""
    response.set_cookie(
        cookie_of(request.headers.get("host", "")),
        session.secret,
        max_age=int(session.life.total_seconds()),
        httponly=True,
        samesite="lax",
        secure=is_encrypted(request),
    )


def forget(request: Request, response: Response) -> None:
    """Delete the session's cookie."""
    response.delete_cookie(cookie_of(request.headers.get("host", "")), httponly=True)


def is_encrypted(request: Request) -> bool:
    """Return whether the browser uses HTTPS, with this server or with a proxy before it."""
    context: Context = request.app.state.context
    address = urlsplit(context.sign_in.public_url)
    is_public = address.netloc == request.headers.get("host", "")
    is_public_https = is_public and address.scheme == "https"
    return request.url.scheme == "https" or is_public_https or _is_https_of_proxy(request)


def _is_https_of_proxy(request: Request) -> bool:
    """Return whether a proxy on this computer reports that the browser uses HTTPS."""
    peer = request.client.host if request.client else ""
    said = request.headers.get("x-forwarded-proto", "")
    return is_loopback(peer) and said.strip().lower() == "https"
