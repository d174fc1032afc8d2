"""Policies of gates: check one, find one, list every version."""

from __future__ import annotations

import json
from datetime import timedelta

from orchestrator.application.context import Context
from orchestrator.application.ports.documents import Source
from orchestrator.domain.document_problems import InvalidDocumentError, Problem
from orchestrator.domain.gate.exception_terms import LONGEST_EXCEPTION, longest_exception
from orchestrator.domain.gate.gate_documents import (
    canonical,
    policy_digest,
    policy_document,
    read_policy_document,
)
from orchestrator.domain.gate.policy import GatePolicy
from orchestrator.domain.gate.policy_checks import ends_too_late
from orchestrator.domain.gate.verdict import StoredPolicy


class GateMissingError(LookupError):
    """No gate of this name has a policy."""


class PolicyMissingError(LookupError):
    """The gate never had this version of its policy."""


def check_policy(context: Context, text: Source, name: str, *, gate: str, by: str) -> StoredPolicy:
    """Return what a policy file would be stored as; nothing is stored.

    Args:
        context: What the operations work with.
        text: The file's text, or what a client sent as JSON.
        name: What messages call the file.
        gate: The gate that it must name.
        by: Who would put it.

    Raises InvalidDocumentError.
    """
    policy = context.documents.read_policy(text, name)
    if policy.metadata.name != gate:
        said = f"is {policy.metadata.name!r}, and it was sent to the gate {gate!r}"
        raise InvalidDocumentError(name, [Problem(("metadata", "name"), said)])
    at = context.clock.now()
    if problems := list(ends_too_late(policy, at.date())):
        raise InvalidDocumentError(name, problems)
    new = StoredPolicy(
        gate=policy.metadata.name,
        product=policy.metadata.product,
        digest=policy_digest(policy),
        text=text if isinstance(text, str) else json.dumps(text, indent=2, ensure_ascii=False),
        document=canonical(policy_document(policy)).decode(),
        first_seen=at,
        since=at,
        by=by,
    )
    present = context.stores.gates.policy(new.gate)
    if present is not None:
        new.refuse_other_product(present, name=name)
    return new


def find_policy(context: Context, gate: str, *, version: str = "") -> StoredPolicy:
    """Return the gate's present policy, or the version with that digest.

    Raises GateMissingError, PolicyMissingError.
    """
    stored = context.stores.gates.policy(gate)
    if stored is None:
        known = ", ".join(one.gate for one in context.stores.gates.policies()) or "none yet"
        raise GateMissingError(
            f"there is no gate {gate!r} (known: {known}); `seatrial gate check FILE` stores one"
        )
    return stored if version in ("", stored.digest) else _version(context, gate, version)


def policy_of(stored: StoredPolicy) -> GatePolicy:
    """Parse a stored version of a policy."""
    return read_policy_document(json.loads(stored.document))


def longest_of(context: Context, product: str) -> timedelta:
    """Return the longest validity that a gate of the product allows for an exception."""
    mine = [one for one in context.stores.gates.policies() if one.product == product]
    return max((longest_exception(policy_of(one)) for one in mine), default=LONGEST_EXCEPTION)


def _version(context: Context, gate: str, digest: str) -> StoredPolicy:
    # A policy names its gate, so that a version is of one gate alone.
    stored = context.stores.gates.policy_version(digest)
    if stored is None or stored.gate != gate:
        raise PolicyMissingError(
            f"the gate {gate!r} never had the policy {digest!r}: `seatrial gate check FILE` puts a"
            f" file and decides by it, `seatrial gate history {gate} --policies` lists those it had"
        )
    return stored
