"""Signed verdicts: what holds, and everything that must not."""

from __future__ import annotations

import base64
import hashlib
import json
import stat
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from orchestrator.adapters.signing import DsseSigner, verify_bundle, write_line
from orchestrator.application.ports.signer import KEYRING, KeyUnusableError, NotVerifiedError
from orchestrator.domain.gate.gate_documents import (
    CellStatement,
    canonical,
    cell_statement,
    subjects,
    verdict_document,
    verdict_statement,
)
from orchestrator.domain.gate.snapshot import CellEvidence, Snapshot
from orchestrator.domain.gate.verdict import Decision, Verdict
from orchestrator.domain.outcome import Outcome

NOW = datetime(2026, 1, 20, 12, tzinfo=UTC)
VERDICT = Verdict(
    gate="release",
    product="proof",
    decision=Decision.PASS,
    at=NOW,
    subject={"name": "lib", "version": "1.10", "wheel_sha256": "e" * 64, "git_sha": "a" * 40},
    policy_digest="b" * 64,
    evidence_digest="c" * 64,
    rules=(),
    summary="It passes.",
    tool="seatrial 1",
)
CELL = CellEvidence(
    run="run-1",
    id="p0",
    platform="p0",
    environment="image",
    state="done",
    outcome=Outcome.PASSED,
    subject=VERDICT.subject,
)
SNAPSHOT = Snapshot(product="proof", subject=VERDICT.subject, runs=("run-1",), cells=(CELL,))
TOLD = {
    "_type": "https://in-toto.io/Statement/v1",
    "subject": [],
    "predicateType": "https://in-toto.io/attestation/test-result/v0.1",
    "predicate": {
        "result": "PASSED",
        "configuration": [],
        "passedTests": ["unit: a"],
        "warnedTests": [],
        "failedTests": [],
        "seatrial": {"signed": False, "counts": {"passed": 1}},
    },
}


@pytest.fixture
def signer(tmp_path: Path) -> DsseSigner:
    return DsseSigner(tmp_path / "keys" / "signing")


def keyring(signer: DsseSigner, *key_ids: str, **dates: datetime | None) -> bytes:
    said = {name: at.isoformat() for name, at in dates.items() if at is not None}
    keys = [{"id": key, "type": "ed25519", "public": signer.public(key), **said} for key in key_ids]
    return json.dumps({"kind": KEYRING, "v": 1, "keys": keys}).encode()


def sealed(signer: DsseSigner, key: str, verdict: Verdict = VERDICT) -> bytes:
    payload = canonical(cell_statement(TOLD, CELL, verdict.evidence_digest))
    cell = CellStatement(run="run-1", cell="p0", payload=payload)
    first = verdict_statement(verdict, SNAPSHOT, "d" * 64, [cell])
    return signer.sign([canonical(first), payload], key)


def pem(private: ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey) -> bytes:
    return private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def public_pem(private: ed25519.Ed25519PrivateKey) -> bytes:
    public = private.public_key()
    return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


# Statements


def test_the_statement_follows_the_predicate_of_simple_results() -> None:
    said = verdict_statement(VERDICT, SNAPSHOT, "d" * 64, [])
    assert said["predicateType"] == "https://in-toto.io/attestation/svr/v0.1"
    predicate = said["predicate"]
    assert predicate["verifier"]["id"] == "urn:seatrial:gate:v1"
    assert predicate["verifier"]["policy"]["digest"] == {"sha256": "b" * 64}
    assert predicate["timeCreated"] == "2026-01-20T12:00:00Z"
    assert predicate["properties"] == ["SEATRIAL_GATE_PASSED"]
    assert predicate["seatrial"]["verdict"] == verdict_document(VERDICT)


@pytest.mark.parametrize(
    ("decision", "properties"),
    [
        (Decision.PASS_WITH_EXCEPTIONS, ["SEATRIAL_GATE_PASSED_WITH_EXCEPTIONS"]),
        (Decision.FAIL, []),
        (Decision.INCONCLUSIVE, []),
    ],
)
def test_only_what_passes_verifies_something(decision: Decision, properties: list[str]) -> None:
    verdict = replace(VERDICT, decision=decision)
    said = verdict_statement(verdict, SNAPSHOT, "d" * 64, [])
    assert said["predicate"]["properties"] == properties


def test_a_statement_is_about_the_digests_of_its_subject() -> None:
    known = {**VERDICT.subject, "payload_sha256": "f" * 64}
    assert subjects(known, "c" * 64) == [
        {"name": "lib 1.10 (wheel)", "digest": {"sha256": "e" * 64}},
        {"name": "lib 1.10 (git)", "digest": {"gitCommit": "a" * 40}},
        {"name": "lib 1.10 (payload)", "digest": {"sha256": "f" * 64}},
    ]


def test_a_subject_without_digests_leaves_only_the_evidence() -> None:
    about = {"name": "evidence of lib 1.10", "digest": {"sha256": "c" * 64}}
    assert subjects({"name": "lib", "version": "1.10"}, "c" * 64) == [about]
    assert subjects({}, "c" * 64) == [{"name": "evidence", "digest": {"sha256": "c" * 64}}]


def test_a_cells_statement_is_the_exports_about_the_frozen_subject() -> None:
    said = cell_statement(TOLD, CELL, "c" * 64)
    assert said["predicate"]["passedTests"] == ["unit: a"]
    assert said["predicate"]["seatrial"] == {
        "counts": {"passed": 1},
        "run": "run-1",
        "cell": "p0",
        "evidence": "c" * 64,
    }
    assert said["subject"] == subjects(CELL.subject, "c" * 64)
    assert TOLD["predicate"]["seatrial"]["signed"] is False


# Keys


def test_keys_are_files_that_only_their_owner_reads(signer: DsseSigner, tmp_path: Path) -> None:
    key = signer.make()
    path = tmp_path / "keys" / "signing" / f"{key}.pem"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert signer.held() == (key,)
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_a_key_that_was_handed_in_is_the_only_one(signer: DsseSigner, tmp_path: Path) -> None:
    signer.make()
    file = tmp_path / "mine.pem"
    file.write_bytes(pem(ed25519.Ed25519PrivateKey.generate()))
    given = DsseSigner(tmp_path / "keys" / "signing", file)
    (key,) = given.held()
    assert key not in signer.held()
    assert not given.can_make()
    bundle = sealed(given, key)
    assert verify_bundle(bundle, keyring(given, key)).key.id == key


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read"),
        (b"nonsense", "is no private key"),
        (pem(rsa.generate_private_key(65537, 2048)), "is no Ed25519 key"),
    ],
    ids=["missing", "nonsense", "rsa"],
)
def test_a_key_file_that_is_none_says_so(tmp_path: Path, content: bytes | None, said: str) -> None:
    file = tmp_path / "mine.pem"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(KeyUnusableError, match=f"SEATRIAL_SIGNING_KEY_FILE .*{said}"):
        DsseSigner(tmp_path, file).held()


def test_a_folder_that_keeps_no_key_says_so(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(KeyUnusableError, match="no signing key can be kept"):
        DsseSigner(tmp_path / "taken").make()


# What holds


def test_a_signed_verdict_verifies_with_the_keyring_alone(signer: DsseSigner) -> None:
    key = signer.make()
    found = verify_bundle(sealed(signer, key), keyring(signer, signer.make(), key))
    assert found.verdict == verdict_document(VERDICT)
    assert found.key.id == key
    assert len(found.statements) == 1
    assert found.remarks == ()


def test_a_single_public_key_does_too_and_cannot_say_when_it_ends(tmp_path: Path) -> None:
    private = ed25519.Ed25519PrivateKey.generate()
    file = tmp_path / "mine.pem"
    file.write_bytes(pem(private))
    signer = DsseSigner(tmp_path, file)
    found = verify_bundle(sealed(signer, *signer.held()), public_pem(private))
    assert "without dates" in found.remarks[0]


def test_the_envelope_is_plain_dsse(signer: DsseSigner) -> None:
    key = signer.make()
    envelope = json.loads(sealed(signer, key).split(b"\n")[0])
    payload = base64.b64decode(envelope["payload"])
    kind = b"application/vnd.in-toto+json"
    signed = b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)
    public = ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(signer.public(key)))
    public.verify(base64.b64decode(envelope["signatures"][0]["sig"]), signed)


# What does not


def test_no_byte_can_be_changed(signer: DsseSigner) -> None:
    key = signer.make()
    ring, bundle = keyring(signer, key), sealed(signer, key)
    assert verify_bundle(bundle, ring)
    for place in range(len(bundle)):
        changed = bytearray(bundle)
        changed[place] ^= 1
        with pytest.raises(NotVerifiedError):
            verify_bundle(bytes(changed), ring)


@pytest.mark.parametrize("flip", [0x02, 0x20, 0x80])
def test_nor_in_any_other_way(signer: DsseSigner, flip: int) -> None:
    key = signer.make()
    ring, bundle = keyring(signer, key), sealed(signer, key)
    for place in range(0, len(bundle), 3):
        changed = bytearray(bundle)
        changed[place] ^= flip
        with pytest.raises(NotVerifiedError):
            verify_bundle(bytes(changed), ring)


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: lines[:1],
        lambda lines: lines + lines[1:],
        lambda lines: lines[::-1],
        lambda lines: [*lines, b""],
        lambda lines: [lines[0].replace(b",", b", ", 1), *lines[1:]],
        lambda lines: [lines[0][:-1] + b',"extra":1}', *lines[1:]],
    ],
    ids=["dropped", "doubled", "turned", "empty-line", "spaced", "extra"],
)
def test_lines_cannot_be_moved_or_rewritten(signer: DsseSigner, change) -> None:
    key = signer.make()
    lines = sealed(signer, key).split(b"\n")[:-1]
    with pytest.raises(NotVerifiedError):
        verify_bundle(b"\n".join([*change(lines), b""]), keyring(signer, key))


def refused(bundle: bytes, ring: bytes) -> str:
    with pytest.raises(NotVerifiedError) as raised:
        verify_bundle(bundle, ring)
    return str(raised.value)


def test_a_changed_payload_has_a_wrong_signature(signer: DsseSigner) -> None:
    key = signer.make()
    first, *rest = sealed(signer, key).split(b"\n")
    envelope = json.loads(first)
    payload = base64.b64decode(envelope["payload"]).replace(b'"PASS"', b'"FAIL"')
    changed = write_line({**envelope, "payload": base64.b64encode(payload).decode()})
    said = refused(changed + b"\n".join(rest), keyring(signer, key))
    assert said.startswith("the signature of line 1 is wrong")


def test_a_stranger_is_named(signer: DsseSigner) -> None:
    key, other = signer.make(), signer.make()
    said = refused(sealed(signer, key), keyring(signer, other))
    assert key in said
    assert other in said
    assert "not among those given" in said


def test_statements_of_another_verdict_do_not_fit(signer: DsseSigner) -> None:
    key = signer.make()
    first = sealed(signer, key).split(b"\n")[0]
    other = canonical(cell_statement(TOLD, replace(CELL, run="run-2"), "c" * 64))
    said = refused(first + b"\n" + signer.sign([other], key), keyring(signer, key))
    assert "line 2 is not the statement about 'p0'" in said
    assert "digest" in said


def test_a_verdict_with_another_digest_than_is_stated(signer: DsseSigner) -> None:
    key = signer.make()
    first = verdict_statement(VERDICT, SNAPSHOT, "d" * 64, [])
    first["predicate"]["seatrial"]["verdictDigest"] = {"sha256": "0" * 64}
    said = refused(signer.sign([canonical(first)], key), keyring(signer, key))
    assert said == "the verdict does not have the digest that is stated of it"


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"not json", "no in-toto statement"),
        (canonical({"_type": "other"}), "no in-toto statement"),
        (canonical(TOLD), "no verdict"),
        (
            canonical({**TOLD, "predicateType": "https://in-toto.io/attestation/svr/v0.1"}),
            "verdict",
        ),
    ],
    ids=["text", "json", "test-result", "svr-of-others"],
)
def test_what_is_signed_and_is_no_verdict(signer: DsseSigner, payload: bytes, said: str) -> None:
    key = signer.make()
    assert said in refused(signer.sign([payload], key), keyring(signer, key))


@pytest.mark.parametrize(
    "bundle", [b"", b"\n", b"{}\n", b"[]\n", b"\xff\n", b'{"payload": 1}\n', b"[" * 5000]
)
def test_what_is_nothing_of_the_kind(signer: DsseSigner, bundle: bytes) -> None:
    assert "no signed verdict" in refused(bundle, keyring(signer, signer.make()))


# When keys end


@pytest.mark.parametrize(("name", "how"), [("not_after", "expired"), ("retired", "was retired")])
def test_a_key_that_had_ended_is_named_with_its_date(
    signer: DsseSigner, name: str, how: str
) -> None:
    key = signer.make()
    ring = keyring(signer, key, **{name: NOW - timedelta(days=1)})
    said = refused(sealed(signer, key), ring)
    assert f"the key {key} {how} on 2026-01-19 12:00 UTC" in said
    assert "2026-01-20 12:00 UTC" in said


def test_a_key_that_ended_later_still_proves_what_it_signed(signer: DsseSigner) -> None:
    key = signer.make()
    ring = keyring(signer, key, retired=NOW + timedelta(seconds=1), created=NOW)
    assert verify_bundle(sealed(signer, key), ring).key.ends_at == NOW + timedelta(seconds=1)


# Keyrings


@pytest.mark.parametrize(
    "keys",
    [
        b"", b"[]", b"{}", b'{"kind": "seatrial-keyring", "v": 2, "keys": []}',
        b'{"kind": "seatrial-keyring", "v": 1, "keys": [{"id": "x", "public": "00"}]}',
        b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", b"[" * 100_000,
    ],
    ids=["empty", "list", "object", "newer", "damaged", "pem", "deep"],
)  # fmt: skip
def test_what_is_no_keyring_says_so(signer: DsseSigner, keys: bytes) -> None:
    assert "key" in refused(sealed(signer, signer.make()), keys)


def test_nobody_puts_another_key_under_a_known_id(signer: DsseSigner) -> None:
    key, other = signer.make(), signer.make()
    forged = keyring(signer, key).replace(
        signer.public(key).encode(), signer.public(other).encode()
    )
    assert "neither a keyring" in refused(sealed(signer, key), forged)


def test_the_first_statement_binds_to_the_bytes_of_the_others(signer: DsseSigner) -> None:
    lines = sealed(signer, signer.make()).split(b"\n")
    first, second = (json.loads(base64.b64decode(json.loads(x)["payload"])) for x in lines[:2])
    digest = hashlib.sha256(canonical(second)).hexdigest()
    assert first["predicate"]["seatrial"]["statements"] == [
        {"run": "run-1", "cell": "p0", "digest": {"sha256": digest}}
    ]
