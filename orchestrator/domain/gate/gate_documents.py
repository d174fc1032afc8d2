"""Conversion of snapshots, verdicts and policies to documents, without loss of digits.

A document has maps, lists, texts, integers, booleans and None. Floating-point numbers, amounts and
times are written as texts, so that a document's bytes are equal on all machines.
"""

from __future__ import annotations

import hashlib
import json
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from enum import Enum
from functools import cache
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from orchestrator.domain.gate.policy import GatePolicy
from orchestrator.domain.gate.snapshot import CellEvidence, Snapshot
from orchestrator.domain.gate.verdict import Decision, Verdict

VERSION = 1
"""Version of the documents' format."""
T = TypeVar("T")


def snapshot_document(snapshot: Snapshot) -> dict[str, object]:
    """Return a snapshot as a document."""
    return _versioned(snapshot)


def read_snapshot(document: Mapping[str, object]) -> Snapshot:
    """Parse a document of `snapshot_document`. Raises ValueError if it is not one."""
    return _read_versioned(Snapshot, document)


def verdict_document(verdict: Verdict) -> dict[str, object]:
    """Return a verdict as a document, which is stored, signed and displayed."""
    return _versioned(verdict)


def read_verdict(document: Mapping[str, object]) -> Verdict:
    """Parse a document of `verdict_document`. Raises ValueError if it is not one."""
    return _read_versioned(Verdict, document)


def policy_document(policy: GatePolicy) -> dict[str, object]:
    """Return a policy as a document, with all default values."""
    return _versioned(policy)


def read_policy_document(document: Mapping[str, object]) -> GatePolicy:
    """Parse a document of `policy_document`. Raises ValueError if it is not one."""
    return _read_versioned(GatePolicy, document)


def canonical(document: Mapping[str, object]) -> bytes:
    """Return the canonical bytes of a document (RFC 8785): sorted keys, no spaces, UTF-8."""
    written = json.dumps(
        _sorted(document), ensure_ascii=False, allow_nan=False, separators=(",", ":")
    )
    return written.encode()


def digest_of(document: Mapping[str, object]) -> str:
    """Return the sha256 of a document's canonical bytes, in hex."""
    return hashlib.sha256(canonical(document)).hexdigest()


def policy_digest(policy: GatePolicy) -> str:
    """Return the digest of a policy, its version; comments, key order and layout do not matter."""
    return digest_of(policy_document(policy))


def _sorted(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _sorted(value[key]) for key in sorted(value, key=_by_utf16)}
    if isinstance(value, list | tuple):
        return [_sorted(each) for each in value]
    if isinstance(value, float):
        raise TypeError("a document holds no floating-point numbers")
    return value


def _by_utf16(key: str) -> bytes:
    return key.encode("utf-16-be")


def _versioned(value: object) -> dict[str, object]:
    return {"v": VERSION, **cast(dict[str, object], _to_json(value))}


def _read_versioned(form: type[T], document: Mapping[str, object]) -> T:
    body = dict(document)
    version = body.pop("v", None)
    if version != VERSION:
        raise ValueError(f"a document of version {version!r}; this program reads {VERSION}")
    return cast(T, _record(body, form, ""))


def _to_json(value: object) -> object:
    if is_dataclass(value):
        told = ((f, getattr(value, f.name)) for f in fields(value))
        return {f.name: _to_json(each) for f, each in told if not _is_left_out(f, each)}
    if isinstance(value, Mapping):
        return {str(key): _to_json(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(each) for each in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, float | Decimal):
        return str(value)
    return value


def _is_left_out(field: Field[Any], value: object) -> bool:
    """Whether a field is left out: it has its default, and older documents lack it (`LATER`)."""
    if not field.metadata.get("later"):
        return False
    made = field.default_factory
    return bool(value == (field.default if made is MISSING else made()))


def _read(value: object, hint: object, at: str) -> object:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _one_of(value, get_args(hint), at)
    if origin is Literal:
        return _known(value, value in get_args(hint), at)
    if origin is tuple:
        known = cast(Sequence[object], _known(value, isinstance(value, list), at))
        return tuple(_read(each, get_args(hint)[0], f"{at}[{n}]") for n, each in enumerate(known))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        entries = cast(Mapping[str, object], _known(value, isinstance(value, Mapping), at))
        return {key: _read(v, get_args(hint)[1], f"{at}.{key}") for key, v in entries.items()}
    if is_dataclass(hint):
        return _record(value, cast(type, hint), at)
    return _scalar(value, hint, at)


def _one_of(value: object, options: tuple[object, ...], at: str) -> object:
    if value is None and type(None) in options:
        return None
    for option in options:
        if option is type(None) or (get_origin(option) is tuple) is not isinstance(value, list):
            continue
        return _read(value, option, at)
    return _known(value, False, at)


def _record(value: object, form: type, at: str) -> object:
    entries = cast(Mapping[str, object], _known(value, isinstance(value, Mapping), at))
    hints = _hints(form)
    unknown = sorted(set(entries) - set(hints))
    if unknown:
        raise ValueError(f"{at or 'document'}: there is no {unknown[0]!r}")
    for field in fields(cast(Any, form)):
        needed = field.default is MISSING and field.default_factory is MISSING
        _known(None, field.name in entries or not needed, f"{at}.{field.name}")
    given = {key: _read(each, hints[key], f"{at}.{key}") for key, each in entries.items()}
    return form(**given)


@cache
def _hints(form: type) -> Mapping[str, object]:
    return get_type_hints(form)


def _scalar(value: object, hint: object, at: str) -> object:
    if hint is object:
        return value
    if hint in (str, int, bool):
        return _known(value, type(value) is hint, at)
    make = _PARSERS.get(cast(type, hint)) or cast(Callable[[str], object], hint)
    try:
        return make(cast(str, _known(value, isinstance(value, str), at)))
    except (ValueError, InvalidOperation):
        raise ValueError(f"{at}: {value!r} cannot be read") from None


_PARSERS: Mapping[type, Callable[[str], object]] = {
    datetime: datetime.fromisoformat,
    date: date.fromisoformat,
}


def _known(value: object, is_right: bool, at: str) -> object:
    if not is_right:
        raise ValueError(f"{at}: {value!r} cannot be read")
    return value


STATEMENT = "https://in-toto.io/Statement/v1"
SIMPLE_RESULT = "https://in-toto.io/attestation/svr/v0.1"
VERIFIER = "urn:seatrial:gate:v1"
PROPERTIES = {
    Decision.PASS: ("SEATRIAL_GATE_PASSED",),
    Decision.PASS_WITH_EXCEPTIONS: ("SEATRIAL_GATE_PASSED_WITH_EXCEPTIONS",),
}
"""Properties that a decision verifies; other decisions verify none."""
Json = dict[str, object]
_DIGESTS = (("wheel_sha256", "sha256"), ("git_sha", "gitCommit"), ("payload_sha256", "sha256"))


@dataclass(frozen=True, slots=True, kw_only=True)
class CellStatement:
    """A signed statement about one cell."""

    run: str
    cell: str
    payload: bytes


def subjects(known: Mapping[str, str], evidence_digest: str) -> list[Json]:
    """Return the subjects of a statement: the tested subject's digests, or else the evidence's."""
    name = f"{known.get('name', '')} {known.get('version', '')}".strip()
    found: list[Json] = [
        {"name": f"{name} ({key.partition('_')[0]})", "digest": {kind: known[key]}}
        for key, kind in _DIGESTS
        if known.get(key)
    ]
    if found:
        return found
    about = f"evidence of {name}" if name else "evidence"
    return [{"name": about, "digest": {"sha256": evidence_digest}}]


def cell_statement(
    document: Mapping[str, object], cell: CellEvidence, evidence_digest: str
) -> Json:
    """Return the statement of an exported cell, with the frozen subject.

    Args:
        document: The exported statement of the cell.
        cell: The frozen cell.
        evidence_digest: Digest of the frozen evidence; used if the subject has no digest.
    """
    predicate = document.get("predicate")
    stated = dict(predicate) if isinstance(predicate, Mapping) else {}
    extra = stated.get("seatrial")
    ours = {k: v for k, v in extra.items() if k != "signed"} if isinstance(extra, Mapping) else {}
    stated["seatrial"] = {**ours, "run": cell.run, "cell": cell.id, "evidence": evidence_digest}
    return {**document, "subject": subjects(cell.subject, evidence_digest), "predicate": stated}


def verdict_statement(
    verdict: Verdict, snapshot: Snapshot, snapshot_digest: str, cells: Sequence[CellStatement]
) -> Json:
    """Return the in-toto statement with a verdict and the digests of the cells' statements."""
    document = verdict_document(verdict)
    return {
        "_type": STATEMENT,
        "subject": subjects(verdict.subject, verdict.evidence_digest),
        "predicateType": SIMPLE_RESULT,
        "predicate": {
            "verifier": {
                "id": VERIFIER,
                "policy": {
                    "uri": f"urn:seatrial:policy:{verdict.gate}",
                    "digest": {"sha256": verdict.policy_digest},
                },
            },
            "timeCreated": verdict.at.isoformat().replace("+00:00", "Z"),
            "properties": list(PROPERTIES.get(verdict.decision, ())),
            "seatrial": {
                "verdict": document,
                "verdictDigest": {"sha256": digest_of(document)},
                "snapshotDigest": {"sha256": snapshot_digest},
                "runs": list(snapshot.runs),
                "statements": [
                    {
                        "run": one.run,
                        "cell": one.cell,
                        "digest": {"sha256": hashlib.sha256(one.payload).hexdigest()},
                    }
                    for one in cells
                ],
            },
        },
    }
