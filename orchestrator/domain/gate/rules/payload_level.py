"""Rule on the payload's level: reviews gave it the level that the policy requires."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from orchestrator.domain.gate.payload_review import (
    PayloadLevel,
    PayloadReview,
    is_at_least,
    review_in_force,
    withdrawal,
)
from orchestrator.domain.gate.policy import some
from orchestrator.domain.gate.rule_context import RuleContext
from orchestrator.domain.gate.snapshot import CellEvidence
from orchestrator.domain.gate.verdict import RuleOutcome, RuleResult

_MOST_LISTED = 20


@dataclass(frozen=True, slots=True)
class _Payload:
    """A payload of the evidence with its reviews."""

    digest: str
    review: PayloadReview | None
    withdrawn: PayloadReview | None
    """The review that withdrew earlier reviews; None if there is none."""

    @property
    def level(self) -> PayloadLevel:
        return self.review.level if self.review else "untrusted"

    @property
    def sentence(self) -> str:
        said = "nobody has reviewed it"
        if self.review is not None:
            said = f"{self.review.by} said so, until {self.review.expires:%Y-%m-%d}"
        elif self.withdrawn is not None:
            said = f"{self.withdrawn.by} withdrew its review on {self.withdrawn.at:%Y-%m-%d}"
        return f"the payload sha256:{self.digest} is {self.level}: {said}"


def payload_level(context: RuleContext) -> Iterator[RuleResult]:
    """Yield a result about the level of the evidence's payloads, with their reviewers.

    The result is advisory if the policy requires no level.
    """
    wanted = context.policy.spec.evidence.payload_level
    blocking = [one for one in context.platforms if one.rule.level == "blocking"]
    cells = [cell for platform in blocking for cell in platform.ran]
    found = [
        _Payload(
            digest,
            review_in_force(digest, context.snapshot.reviews, context.now),
            withdrawal(digest, context.snapshot.reviews, context.now),
        )
        for digest in sorted({cell.subject.get("payload_sha256", "") for cell in cells} - {""})
    ]
    unread = [one for one in found if not is_at_least(one.level, wanted)]
    nameless = [cell.id for cell in cells if not cell.subject.get("payload_sha256")]
    is_asked = wanted != "untrusted"
    if not (found or (is_asked and nameless)):
        return
    yield RuleResult(
        id="payload_level",
        kind="payload_level",
        blocking=is_asked,
        outcome=_outcome(found, unread, nameless if is_asked else []),
        sentence=_sentence(found, unread, nameless if is_asked else [], wanted, _hooks(cells)),
        inputs={
            "wanted": wanted,
            "payloads": [
                {
                    "digest": one.digest,
                    "level": one.level,
                    "review": one.review.id if one.review else "",
                }
                for one in found
            ],
            "hooks": _hooks(cells)[:_MOST_LISTED],
        },
        waivable=False,
    )


def _outcome(
    payloads: Sequence[_Payload], unread: Sequence[_Payload], nameless: Sequence[str]
) -> RuleOutcome:
    if unread:
        return RuleOutcome.VIOLATED
    is_known = not nameless and all(one.review for one in payloads)
    return RuleOutcome.OK if is_known else RuleOutcome.UNKNOWN


def _sentence(
    payloads: Sequence[_Payload],
    unread: Sequence[_Payload],
    nameless: Sequence[str],
    wanted: PayloadLevel,
    hooks: list[str],
) -> str:
    said = [one.sentence for one in payloads]
    if unread or nameless:
        said.insert(0, f"a payload that is {wanted} is asked for")
    if nameless:
        said.append(f"of {some(list(nameless))} no payload is known that anybody could read")
    if unread:
        command = f"seatrial gate review {unread[0].digest} --level {wanted} --days 90"
        said.append(f"whoever reads it says so by `{command}`")
        files = some(hooks) if hooks else "no file that is known to change outcomes"
        said.append(f"to be read before all: {files}")
    whole = "; ".join(said)
    return f"{whole[0].upper()}{whole[1:]}."


def _hooks(cells: Sequence[CellEvidence]) -> list[str]:
    """Return the files of the payload with hooks that can change outcomes."""
    told: dict[str, set[str]] = {}
    for cell in cells:
        for job in cell.jobs:
            for hook in job.test_set.hooks:
                told.setdefault(hook.file, set()).add(hook.name)
    return [f"{file} ({', '.join(sorted(told[file]))})" for file in sorted(told)]
