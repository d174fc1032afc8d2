"""Who asks: the token's name where one is used; on the socket nobody says."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from orchestrator.api.guard import Guard, secret_of
from orchestrator.application.ports.stores import Scope, Token
from orchestrator.domain.problems import InvalidDocumentError, Problem


def _caller(request: Request) -> str:
    guard: Guard | None = request.app.state.guard
    token = guard(secret_of(request), Scope.READ) if guard is not None else None
    return token.name if isinstance(token, Token) else ""


CallerDep = Annotated[str, Depends(_caller)]
"""The name of the request's token; empty on the socket."""


def signed_by(caller: str, said: str, field: str) -> str:
    """Who it is by: the token's name, else what was said.

    Raises InvalidDocumentError where somebody signs with another's name.
    """
    if caller and said.strip() and said.strip() != caller:
        message = f"must be empty or {caller!r}, which is the name of the token that is used"
        raise InvalidDocumentError("the request", [Problem((field,), message)])
    return caller or said.strip()
