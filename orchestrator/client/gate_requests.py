"""Requests to a controller about gates: policies, verdicts, sign-offs, keys."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from orchestrator.client.transport import Answer, AnswerList, Client, Json, key_of, newest
from orchestrator.domain.gate.payload_review import PayloadReviewResponse
from orchestrator.domain.gate.snapshot import ApprovalResponse, WaiverResponse
from orchestrator.domain.gate.verdict import (
    KeyResponse,
    ReplayResponse,
    StoredPolicy,
    Verdict,
    VerdictLine,
    VerdictResponse,
)


class GateRequests(Client):
    """Requests about gates."""

    def gates(self) -> AnswerList[StoredPolicy]:
        """Return the present policy of each gate."""
        return AnswerList(self.every("/gates"), StoredPolicy)

    def policy(self, gate: str) -> Answer[StoredPolicy]:
        """Return the present policy of a gate."""
        return Answer(self.get(_gate_path(gate)), StoredPolicy)

    def policies(self, gate: str) -> AnswerList[StoredPolicy]:
        """Return every version of a gate's policy, newest first."""
        answer = self.every(f"{_gate_path(gate)}/policies", cursor="before")
        return AnswerList(answer, StoredPolicy)

    def set_policy(self, gate: str, policy: str, *, document: str = "") -> Answer[StoredPolicy]:
        """Store the text of a policy as the gate's present one."""
        answer = self.put(_gate_path(gate), {"policy": policy}, document=document)
        return Answer(answer, StoredPolicy)

    def check_gate(
        self,
        gate: str,
        runs: Sequence[str] = (),
        *,
        lineage: str = "",
        key: str | None = None,
        document: str = "",
        **decided_by: str,
    ) -> Answer[VerdictResponse]:
        """Decide, and sign and store the verdict.

        Args:
            gate: Its name, as the policy has it.
            runs: The runs to look at; the product's newest finished one if there are none.
            lineage: The line of verdicts, such as a branch.
            key: See `Seatrial`.
            document: See `Seatrial`.
            decided_by: ``policy``, the text of one that becomes the gate's, with its file's
                ``name``, or ``policy_digest``, of a stored one; the gate's present one otherwise.
        """
        body = {"runs": list(runs), "lineage": lineage, **decided_by}
        path = f"{_gate_path(gate)}/evaluate"
        return Answer(self.post(path, body, key=key_of(key), document=document), VerdictResponse)

    def try_gate(
        self, gate: str, runs: Sequence[str] = (), *, document: str = "", **options: str
    ) -> Answer[Verdict]:
        """Decide without signing or storing anything.

        `options` are ``policy`` and ``name`` as in `check_gate`, and ``now``, the time at which
        ages are measured, in RFC 3339.
        """
        body = {"runs": list(runs), **options}
        return Answer(self.post(f"{_gate_path(gate)}/dry-run", body, document=document), Verdict)

    def verdict(self, name: str) -> Answer[VerdictResponse]:
        """Return a verdict by its id, as ``V-0001``."""
        return Answer(self.get(_verdict_path(name)), VerdictResponse)

    def verdicts(self, gate: str, *, limit: int = 20, lineage: str = "") -> AnswerList[VerdictLine]:
        """Return the verdicts of a gate, newest first."""
        path = f"{_gate_path(gate)}/verdicts"
        found = newest(self, path, limit=limit, lineage=lineage or None)
        return AnswerList({"items": [*found]}, VerdictLine)

    def statement(self, verdict: str) -> str:
        """Return a signed verdict, as `seatrial gate verify` takes it."""
        return self.text(f"{_verdict_path(verdict)}/statement")

    def frozen_evidence(self, verdict: str) -> str:
        """Return the evidence that a verdict was made of, as canonical JSON."""
        return self.text(f"{_verdict_path(verdict)}/evidence")

    def replay(self, verdict: str) -> Answer[ReplayResponse]:
        """Evaluate a verdict again, with its own policy, evidence and time."""
        return Answer(self.get(f"{_verdict_path(verdict)}/replay"), ReplayResponse)

    def waivers(self, gate: str | None = None) -> AnswerList[WaiverResponse]:
        """Return the waivers, expired ones included; of one gate or of all."""
        return AnswerList(self.every("/waivers", gate=gate), WaiverResponse)

    def request_waiver(
        self,
        gate: str,
        rule: str,
        *,
        reason: str,
        days: int,
        verdict: str = "",
        only_this: bool = False,
    ) -> Answer[WaiverResponse]:
        """Request a waiver of one rule; it counts once another person approves it.

        Args:
            gate: The gate's name.
            rule: The rule, as a verdict has it.
            reason: For people who read the verdict.
            days: Until it expires.
            verdict: The verdict that was read; the newest one by default.
            only_this: Whether it is limited to that verdict's evidence.
        """
        body: Json = {"gate": gate, "rule": rule, "reason": reason, "days": days}
        body |= {"verdict": verdict, "only_this": only_this}
        return Answer(self.post("/waivers", body), WaiverResponse)

    def approve_waiver(self, waiver: str) -> Answer[WaiverResponse]:
        """Approve a waiver, as the owner of the token."""
        path = f"/waivers/{quote(waiver, safe='')}/approve"
        return Answer(self.post(path), WaiverResponse)

    def approvals(self, gate: str | None = None) -> AnswerList[ApprovalResponse]:
        """Return the approvals of evidence; of one gate or of all."""
        return AnswerList(self.every("/approvals", gate=gate), ApprovalResponse)

    def approve(self, gate: str, verdict: str = "") -> Answer[ApprovalResponse]:
        """Approve the evidence of a verdict, the gate's newest by default."""
        body = {"gate": gate, "verdict": verdict}
        return Answer(self.post("/approvals", body), ApprovalResponse)

    def payload_reviews(self, payload: str | None = None) -> AnswerList[PayloadReviewResponse]:
        """Return the reviews of payloads, expired ones included; of one digest or of all."""
        return AnswerList(self.every("/payload-reviews", payload=payload), PayloadReviewResponse)

    def review_payload(
        self, payload: str, level: str, *, days: int, note: str = ""
    ) -> Answer[PayloadReviewResponse]:
        """Say how far a payload is trusted, for so many days.

        `level` is ``reviewed``, ``trusted``, or ``untrusted``, which withdraws all earlier reviews.
        """
        body = {"payload": payload, "level": level, "days": days, "note": note}
        return Answer(self.post("/payload-reviews", body), PayloadReviewResponse)

    def keys(self) -> AnswerList[KeyResponse]:
        """Return the public keys that verdicts are signed with, retired ones included."""
        return AnswerList(self.get("/keys"), KeyResponse)

    def keyring(self) -> str:
        """Return every public key with its dates, as `seatrial gate verify` takes it."""
        return self.text("/keyring")

    def rotate_keys(self) -> Answer[KeyResponse]:
        """Sign with a new key from now on; the old one is retired."""
        return Answer(self.post("/keys/rotate"), KeyResponse)

    def retire_key(self, key: str) -> Answer[KeyResponse]:
        """Retire a key now; its earlier signatures stay valid."""
        return Answer(self.post(f"/keys/{quote(key, safe='')}/retire"), KeyResponse)


def _gate_path(name: str) -> str:
    return f"/gates/{quote(name, safe='')}"


def _verdict_path(name: str) -> str:
    return f"/verdicts/{quote(name, safe='')}"
