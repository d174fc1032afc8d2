"""Small values for tests of the domain."""

from __future__ import annotations

import json
from typing import Any

from orchestrator.domain.document_problems import Problem
from orchestrator.domain.machine import ProviderTraits
from orchestrator.domain.manifest import Environment, Job, Manifest
from orchestrator.domain.matrix import JobSelection, Matrix, Metadata, Platform, Subject


def impossible_places(platform: Platform) -> tuple[Problem, ...]:
    """A provider's check: nothing is in Atlantis."""
    places = enumerate(platform.locations or ())
    return tuple(Problem(("locations", at), "no region") for at, one in places if one == "atlantis")


TRAITS = {
    "local": ProviderTraits("local", frozenset(), rented=False),
    "static": ProviderTraits("static", frozenset({"hosts"}), frozenset({"hosts"}), rented=False),
    "aws": ProviderTraits(
        "aws", frozenset({"instance_type", "locations", "market"}), check=impossible_places
    ),
}


def manifest(*job_ids: str, environments: tuple[str, ...] = (), **changes: Any) -> Manifest:
    jobs = tuple(Job(id=each, kind="demo", command=("true",)) for each in job_ids or ("a", "b"))
    values = {
        "name": "p",
        "version": "1",
        "job": jobs,
        "env": {n: Environment() for n in environments},
    }
    return Manifest(**{**values, **changes})


def matrix(**changes: Any) -> Matrix:
    values = {
        "metadata": Metadata(name="m"),
        "subject": Subject(name="s", version="1"),
        "platforms": (Platform(id="here", provider="local"),),
        "jobs": (JobSelection(select="*"),),
    }
    return Matrix(**{**values, **changes})


def line(seq: int, kind: str = "log", data: object = None, **changes: object) -> bytes:
    event = {"v": 1, "seq": seq, "ts": 1.5, "kind": kind, "job": "j", "data": data or {}}
    return json.dumps({**event, **changes}).encode() + b"\n"
