"""Requests to a controller about gates: policies, verdicts, waivers, approvals, keys."""

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
        """Return the current policy of each gate."""
        return AnswerList(self.every("/gates"), StoredPolicy)

    def policy(self, gate: str) -> Answer[StoredPolicy]:
        """Return the current policy of a gate."""
        return Answer(self.get(_gate_path(gate)), StoredPolicy)

    def policies(self, gate: str) -> AnswerList[StoredPolicy]:
        """Return every version of a gate's policy, newest first."""
        answer = self.every(f"{_gate_path(gate)}/policies", cursor="before")
        return AnswerList(answer, StoredPolicy)

    def set_policy(self, gate: str, policy: str, *, document: str = "") -> Answer[StoredPolicy]:
        """Store the text of a policy as the gate's current policy."""
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
        """Evaluate the gate; sign and store the verdict.

        Args:
            gate: The gate's name.
            runs: The runs to evaluate; without any, the newest finished run of the product.
            lineage: The lineage of the verdict, such as a branch.
            key: See `Seatrial`.
            document: See `Seatrial`.
            decided_by: ``policy``, the text of a policy, which becomes the gate's policy, with
                ``name``, the name of its file; or ``policy_digest``, the digest of a stored
                policy. By default the gate's current policy decides.
        """
        body = {"runs": list(runs), "lineage": lineage, **decided_by}
        path = f"{_gate_path(gate)}/evaluate"
        return Answer(self.post(path, body, key=key_of(key), document=document), VerdictResponse)

    def try_gate(
        self, gate: str, runs: Sequence[str] = (), *, document: str = "", **options: str
    ) -> Answer[Verdict]:
        """Evaluate the gate without signing or storing a verdict.

        `options` are ``policy`` and ``name`` as in `check_gate`, and ``now`` (RFC 3339):
        the time at which the ages of the evidence are measured.
        """
        body = {"runs": list(runs), **options}
        return Answer(self.post(f"{_gate_path(gate)}/dry-run", body, document=document), Verdict)

    def verdict(self, name: str) -> Answer[VerdictResponse]:
        """Return a verdict by its id, such as ``V-0001``."""
        return Answer(self.get(_verdict_path(name)), VerdictResponse)

    def verdicts(self, gate: str, *, limit: int = 20, lineage: str = "") -> AnswerList[VerdictLine]:
        """Return the verdicts of a gate, newest first."""
        path = f"{_gate_path(gate)}/verdicts"
        found = newest(self, path, limit=limit, lineage=lineage or None)
        return AnswerList({"items": [*found]}, VerdictLine)

    def statement(self, verdict: str) -> str:
        """Return a signed verdict in the form that `seatrial gate verify` reads."""
        return self.text(f"{_verdict_path(verdict)}/statement")

    def frozen_evidence(self, verdict: str) -> str:
        """Return the evidence of a verdict as canonical JSON."""
        return self.text(f"{_verdict_path(verdict)}/evidence")

    def replay(self, verdict: str) -> Answer[ReplayResponse]:
        """Evaluate a stored verdict again.

        The policy, the evidence and the time are those of the verdict.
        """
        return Answer(self.get(f"{_verdict_path(verdict)}/replay"), ReplayResponse)

    def waivers(self, gate: str | None = None) -> AnswerList[WaiverResponse]:
        """Return the waivers of one gate or of all, with the expired ones."""
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
        """Request a waiver of one rule; it takes effect when another person approves it.

        Args:
            gate: The gate's name.
            rule: The rule's name, as in a verdict.
            reason: The reason, for people who read a verdict.
            days: Number of days until it expires.
            verdict: The verdict with the violated rule; the newest one by default.
            only_this: Whether it is limited to the evidence of that verdict.
        """
        body: Json = {"gate": gate, "rule": rule, "reason": reason, "days": days}
        body |= {"verdict": verdict, "only_this": only_this}
        return Answer(self.post("/waivers", body), WaiverResponse)

    def approve_waiver(self, waiver: str) -> Answer[WaiverResponse]:
        """Approve a waiver in the name of the token's owner."""
        path = f"/waivers/{quote(waiver, safe='')}/approve"
        return Answer(self.post(path), WaiverResponse)

    def approvals(self, gate: str | None = None) -> AnswerList[ApprovalResponse]:
        """Return the approvals of evidence, of one gate or of all."""
        return AnswerList(self.every("/approvals", gate=gate), ApprovalResponse)

    def approve(self, gate: str, verdict: str = "") -> Answer[ApprovalResponse]:
        """Approve the evidence of a verdict; by default of the gate's newest one."""
        body = {"gate": gate, "verdict": verdict}
        return Answer(self.post("/approvals", body), ApprovalResponse)

    def payload_reviews(self, payload: str | None = None) -> AnswerList[PayloadReviewResponse]:
        """Return the reviews of one payload or of all, with the expired ones."""
        return AnswerList(self.every("/payload-reviews", payload=payload), PayloadReviewResponse)

    def review_payload(
        self, payload: str, level: str, *, days: int, note: str = ""
    ) -> Answer[PayloadReviewResponse]:
        """Set the trust level of a payload for a number of days.

        `payload` is the digest. `level` is ``reviewed``, ``trusted`` or ``untrusted``;
        ``untrusted`` withdraws all earlier reviews.
        """
        body = {"payload": payload, "level": level, "days": days, "note": note}
        return Answer(self.post("/payload-reviews", body), PayloadReviewResponse)

    def keys(self) -> AnswerList[KeyResponse]:
        """Return the public keys of the controller's signatures, with the retired ones."""
        return AnswerList(self.get("/keys"), KeyResponse)

    def keyring(self) -> str:
        """Return all public keys with their dates, as `seatrial gate verify` reads them."""
        return self.text("/keyring")

    def rotate_keys(self) -> Answer[KeyResponse]:
        """Create a new signing key for all later signatures, and retire the old key."""
        return Answer(self.post("/keys/rotate"), KeyResponse)

    def retire_key(self, key: str) -> Answer[KeyResponse]:
        """Retire a key; its earlier signatures stay valid."""
        return Answer(self.post(f"/keys/{quote(key, safe='')}/retire"), KeyResponse)


def _gate_path(name: str) -> str:
    return f"/gates/{quote(name, safe='')}"


def _verdict_path(name: str) -> str:
    return f"/verdicts/{quote(name, safe='')}"
