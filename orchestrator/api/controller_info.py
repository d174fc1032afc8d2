"""The controller: health, readiness, providers and schemas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, cast

from fastapi import APIRouter, Depends, Request, Response, Security

from orchestrator.api.dependencies import ContextDep
from orchestrator.api.errors import ErrorAnswer, answer
from orchestrator.api.models import ListResponse, ResponseModel
from orchestrator.api.security import bearer, secured
from orchestrator.application.context import Context
from orchestrator.domain.caller_identity import Scope
from orchestrator.domain.catalogue import PlatformResponse
from orchestrator.domain.machine import ProviderError, Refusing
from orchestrator.store.errors import StoreUnusableError

_UNREADY = ErrorAnswer(503, "not-ready", "The controller cannot work now", {"Retry-After": "5"})
health = APIRouter(tags=["service"])
router = APIRouter(
    tags=["service"], route_class=secured(Scope.READ), dependencies=[Security(bearer)]
)


class HealthResponse(ResponseModel):
    """The process is alive."""

    status: str


class ReadinessResponse(ResponseModel):
    """The controller can read and write its database."""

    status: str
    revision: str | None
    """Revision of the database's schema; null if it is unknown."""


async def _revision(request: Request) -> Callable[[], str] | None:
    return cast("Callable[[], str] | None", request.app.state.revision)


@health.get("/healthz")
def get_health() -> HealthResponse:
    """Return 200 while the process is alive."""
    return HealthResponse(status="ok")


@health.get("/readyz", response_model=ReadinessResponse)
def get_readiness(
    context: ContextDep, revision: Annotated[Callable[[], str] | None, Depends(_revision)]
) -> ReadinessResponse | Response:
    """Return the revision of the schema if the database can be read and written, else 503."""
    try:
        context.stores.runs.page(limit=1, before=None)
        at = revision() if revision is not None else None
    except StoreUnusableError as error:
        return answer("/readyz", _UNREADY, error.advice)
    except Exception:  # noqa: BLE001 - whatever the reason, the answer is no; it may hold secrets
        return answer("/readyz", _UNREADY, "the database cannot be used now")
    return ReadinessResponse(status="ok", revision=at)


@router.get("/platforms")
def list_platforms(context: ContextDep) -> ListResponse[PlatformResponse]:
    """List every provider with its platform keys."""
    return ListResponse(
        items=[
            PlatformResponse(
                provider=name,
                rented=traits.rented,
                keys=tuple(sorted(traits.keys)),
                required=tuple(sorted(traits.required)),
                refused="" if traits.rented else _refusal(context, name),
            )
            for name, traits in sorted(context.traits.items())
        ]
    )


def _refusal(context: Context, name: str) -> str:
    try:
        provider = context.provider(name)
    except ProviderError as error:
        return str(error)
    return provider.refusal if isinstance(provider, Refusing) else ""


@router.get("/schema/matrix")
def get_matrix_schema(context: ContextDep) -> dict[str, Any]:
    """Return the JSON Schema of a matrix file."""
    return context.documents.matrix_schema()


@router.get("/schema/payload")
def get_payload_schema(context: ContextDep) -> dict[str, Any]:
    """Return the JSON Schema of ``payload.toml``."""
    return context.documents.manifest_schema()
