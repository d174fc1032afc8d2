"""What clients send, with an example of each."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Body
from fastapi.openapi.models import Example
from pydantic import BeforeValidator, Field, WithJsonSchema

from orchestrator.api.models import RequestModel
from orchestrator.application.launch_run import BUILTIN, LaunchOrder
from orchestrator.application.ports.documents import Source
from orchestrator.application.ports.stores import Scope
from orchestrator.application.rerun_run import Only
from orchestrator.domain.retests import TrialOrder

MATRIX_TEXT = """\
apiVersion: seatrial/v1
kind: Matrix
metadata: {name: local}
subject: {name: torchbridge, version: "0.4.40"}
platforms:
  - {id: local-cpu, provider: local}
jobs:
  - {id: moe, on: all}
"""
_MATRIX_OBJECT = {
    "apiVersion": "seatrial/v1",
    "kind": "Matrix",
    "metadata": {"name": "local"},
    "subject": {"name": "torchbridge", "version": "0.4.40"},
    "platforms": [{"id": "local-cpu", "provider": "local"}],
    "jobs": [{"id": "moe", "on": "all"}],
}
_DIGEST = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"


def _is_source(value: object) -> object:
    if not isinstance(value, str | dict):
        raise ValueError("a matrix is the text of a YAML file, or an object")
    return value


Matrix = Annotated[
    Any,
    BeforeValidator(_is_source),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "object"}], "title": "Matrix"}),
]


class TrialsRequest(RequestModel):
    """What is found out about failing tests while their machine is still there."""

    reruns: int = Field(default=0, ge=0, le=20)
    """How often a failed test is run again with nothing changed."""
    diagnose: bool = False
    """Also with the baseline subject, and with the packages of the last green run."""
    max_tests: int = Field(default=20, ge=1, le=200)
    """Failing tests of a cell that are looked into."""
    max_minutes: float = Field(default=15.0, gt=0, le=1440, allow_inf_nan=False)
    """Of the machine's time."""
    await_minutes: float = Field(default=0.0, ge=0, le=1440, allow_inf_nan=False)
    """How long a machine waits for trials that somebody asks for, after its own."""

    @property
    def wanted(self) -> TrialOrder:
        """The order as the domain has it."""
        return TrialOrder(**self.model_dump())


class LaunchRequest(RequestModel):
    """A matrix and what it is about."""

    matrix: Matrix
    """The text of a matrix file, or the same as an object; ``GET /schema/matrix`` describes it."""
    name: str = Field(default="matrix", min_length=1, max_length=200)
    """What messages call the matrix: its file's name."""
    payload: str = Field(default=BUILTIN, pattern=f"^({BUILTIN}|[0-9a-f]{{64}})$")
    """``builtin``, or the digest of an uploaded archive."""
    subject: str | None = Field(default=None, pattern="^[0-9a-f]{64}$")
    """The digest of the uploaded wheel, where the matrix names one."""
    baseline: str | None = Field(default=None, pattern="^[0-9a-f]{64}$")
    """The digest of the uploaded baseline, a wheel or a payload, where the matrix names one."""
    hold_minutes: float = Field(default=0.0, ge=0, le=1440, allow_inf_nan=False)
    """How long the machine of a cell that does not pass is kept for a person to look at."""
    trials: TrialsRequest | None = None
    """What is found out about failing tests; null for nothing."""
    reuse_hours: float | None = Field(default=None, gt=0, le=8760, allow_inf_nan=False)
    """Jobs that passed no longer ago, with nothing changed since, are not run; null runs all."""

    def order(self) -> LaunchOrder:
        """What the client asks for."""
        source: Source = self.matrix
        return LaunchOrder(
            matrix=source,
            name=self.name,
            payload=self.payload,
            subject_digest=self.subject,
            baseline_digest=self.baseline,
            hold_minutes=self.hold_minutes,
            trials=self.trials.wanted if self.trials else None,
            reuse_max_age_s=self.reuse_hours * 3600 if self.reuse_hours is not None else None,
        )


class RerunRequest(RequestModel):
    """Which jobs to run again."""

    only: Only | None = None
    """null takes every job of the run."""
    hold_minutes: float = Field(default=0.0, ge=0, le=1440, allow_inf_nan=False)
    """How long the machine of a cell that does not pass is kept for a person to look at."""


class TokenRequest(RequestModel):
    """A token to make."""

    name: str = Field(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]+$")
    """Says who or what will use it."""
    scope: Literal["read", "run", "gate", "admin"]
    """Each includes the ones before it."""
    days: int | None = Field(default=90, ge=1, le=3650)
    """Until it expires; null for never."""

    @property
    def wanted(self) -> Scope:
        """The scope as the domain has it."""
        return Scope(self.scope)


_LAUNCH_EXAMPLES: dict[str, Example] = {
    "text": {
        "summary": "A matrix file's text, with the payload that comes with Seatrial",
        "value": {"matrix": MATRIX_TEXT, "name": "local.yaml", "payload": BUILTIN},
    },
    "object": {
        "summary": "The matrix as an object, with an uploaded payload and wheel",
        "value": {"matrix": _MATRIX_OBJECT, "payload": _DIGEST, "subject": _DIGEST},
    },
    "hold": {
        "summary": "With the machines of cells that do not pass kept for half an hour",
        "value": {"matrix": MATRIX_TEXT, "hold_minutes": 30},
    },
    "reuse": {
        "summary": "Only what changed since it passed, at most a day and a half ago",
        "value": {"matrix": MATRIX_TEXT, "reuse_hours": 36},
    },
    "trials": {
        "summary": "With failing tests run again, and looked into, on their machine",
        "value": {"matrix": MATRIX_TEXT, "trials": {"reruns": 2, "diagnose": True}},
    },
}
_RERUN_EXAMPLES: dict[str, Example] = {
    "failed": {"summary": "Only what failed or timed out", "value": {"only": "failed"}},
    "all": {"summary": "Everything", "value": {"only": None}},
}
_TOKEN_EXAMPLES: dict[str, Example] = {
    "pipeline": {
        "summary": "A token for a pipeline that launches runs",
        "value": {"name": "nightly pipeline", "scope": "run", "days": 90},
    }
}

Launch = Annotated[LaunchRequest, Body(openapi_examples=_LAUNCH_EXAMPLES)]
Rerun = Annotated[RerunRequest | None, Body(openapi_examples=_RERUN_EXAMPLES)]
NewToken = Annotated[TokenRequest, Body(openapi_examples=_TOKEN_EXAMPLES)]


def archive_body(what: str) -> dict[str, object]:
    """What OpenAPI says of an uploaded file."""
    return {
        "requestBody": {
            "required": True,
            "content": {
                "application/octet-stream": {
                    "schema": {"type": "string", "format": "binary"},
                    "examples": {"file": {"summary": what, "value": "(the bytes of the file)"}},
                }
            },
        }
    }
