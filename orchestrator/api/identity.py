"""Who asks: the owner of the token; on the home's socket, the operating-system user."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from orchestrator.api.security import Guard, credential_of
from orchestrator.domain.person import SOCKET, Person, Scope


def _caller(request: Request) -> Person:
    guard: Guard | None = request.app.state.guard
    if guard is None:
        return Person(request.app.state.operator, SOCKET)
    token = guard(credential_of(request), Scope.READ)
    return Person(token.name, token.id)


CallerDep = Annotated[Person, Depends(_caller)]
"""Who makes the request. No name in a body counts for it."""
