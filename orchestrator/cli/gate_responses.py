"""Verdicts as the controller tells them, as far as the commands look at them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from orchestrator.cli.errors import CliError, UnreachableError

Shown = TypeVar("Shown", bound=BaseModel)


class Policy(BaseModel):
    """A version of a gate's policy."""

    gate: str
    digest: str


class BlameRow(BaseModel):
    """Who broke a failing test."""

    job: str = ""
    nodeid: str = ""
    answer: str = ""
    evidence: str = ""


class RuleInputs(BaseModel):
    """What a rule rests on, as far as the commands look at it."""

    blame: list[BlameRow] = []


class Rule(BaseModel):
    """One rule, explained."""

    id: str = ""
    kind: str = ""
    blocking: bool = True
    outcome: str = ""
    sentence: str = ""
    inputs: RuleInputs = RuleInputs()
    by: list[str] = []

    @property
    def is_ok(self) -> bool:
        """Whether there is nothing to say about it."""
        return self.outcome == "ok"


class Verdict(BaseModel):
    """A verdict, or what a dry run says."""

    id: str = ""
    gate: str = ""
    decision: str = ""
    summary: str = ""
    at: str = ""
    subject: dict[str, str] = {}
    rules: list[Rule] = []
    warnings: list[str] = []
    runs: list[str] = []
    lineage: str = ""
    policy_digest: str = ""
    evidence_digest: str = ""
    key_id: str = ""


def read_policy(shown: Mapping[str, object]) -> Policy:
    """The policy in an answer. Raises UnreachableError where it is none."""
    return _read(Policy, shown)


def read_verdict(shown: Mapping[str, object]) -> Verdict:
    """The verdict in an answer. Raises UnreachableError where it is none."""
    return _read(Verdict, shown)


def read_verdicts(answer: Mapping[str, object]) -> list[Verdict]:
    """Those of a list."""
    items = answer.get("items")
    if not isinstance(items, list):
        raise CliError("the controller's answer has no list")
    return [read_verdict(item) for item in items if isinstance(item, dict)]


def _read(form: type[Shown], shown: Mapping[str, object]) -> Shown:
    try:
        return form.model_validate(shown)
    except ValidationError as error:
        raise UnreachableError(f"the controller's answer cannot be read: {error}") from None
