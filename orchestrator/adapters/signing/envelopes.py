"""Bundles: DSSE envelopes, one per line, in a canonical form.

The same JSON and the same base64 can be written in many ways. Only the canonical form is accepted,
so that every change of a byte of a bundle is detected.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping

from securesystemslib.dsse import Envelope

from orchestrator.application.ports.signer import NotVerifiedError
from orchestrator.domain.gate.gate_documents import canonical

PAYLOAD_TYPE = "application/vnd.in-toto+json"


def write_line(envelope: Mapping[str, object]) -> bytes:
    """Return an envelope as a line."""
    return canonical(envelope) + b"\n"


def read_bundle(bundle: bytes) -> list[Envelope]:
    """Return the envelopes of a bundle. Raises NotVerifiedError."""
    lines = bundle.split(b"\n")
    if lines.pop() or not lines:
        raise NotVerifiedError("this is no signed verdict: it must end with a whole line")
    return [_read_line(line, number) for number, line in enumerate(lines, 1)]


def _read_line(line: bytes, number: int) -> Envelope:
    try:
        said = json.loads(line)
        payload, kind = said["payload"], said["payloadType"]
        (signature,) = said["signatures"]
        plain = {
            "payload": _again(payload),
            "payloadType": kind,
            "signatures": [{"keyid": signature["keyid"], "sig": _again(signature["sig"])}],
        }
        is_plain = write_line(plain) == line + b"\n"
        envelope = Envelope.from_dict(plain)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        message = f"this is no signed verdict: line {number} is no DSSE envelope"
        raise NotVerifiedError(message) from error
    if not is_plain:
        raise NotVerifiedError(f"line {number} is not written as it was signed: it was changed")
    if kind != PAYLOAD_TYPE:
        raise NotVerifiedError(f"line {number} is of another kind: {str(kind)[:80]!r}")
    return envelope


def _again(text: str) -> str:
    """Decode base64 and encode it again in its canonical form."""
    try:
        return base64.b64encode(base64.b64decode(text, validate=True)).decode()
    except binascii.Error as error:
        raise ValueError(str(error)) from error
