"""Where a gate stands, in one plain sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.application.gate_status import GateStanding, Lack
from orchestrator.application.ports.verdict_lines import VerdictLine
from orchestrator.dashboard import urls
from orchestrator.dashboard.labels import age
from orchestrator.dashboard.pages.gates.waiting import wait_texts
from orchestrator.dashboard.responses import Asked
from orchestrator.dashboard.table import Text
from orchestrator.domain.gate.verdict import RuleOutcome
from orchestrator.domain.vocabulary import term

_LONGEST = 160
_SERIOUS = frozenset({Lack.VERDICT, Lack.JUDGEMENT, Lack.RUN, Lack.FRESH_EVIDENCE, Lack.POLICY})
"""What the reasons do not say already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSentence:
    """What a gate says, and why."""

    gate: str
    word: str
    """Of its newest verdict; empty where it never decided."""
    verdict: str
    href: str
    about: str
    """``for 0.4.40, 2 h ago``."""
    reason: str
    """Of the blocking rules that decided it, the first one's sentence."""
    more: int
    """Rules beside it."""
    waits: Sequence[Text]

    @property
    def tone(self) -> str:
        """Of the decision."""
        return term(self.word).tone if self.word else "warn"

    @property
    def text(self) -> str:
        """All of it."""
        said_so = term(self.word).word if self.word else "no verdict yet"
        more = f" (and {self.more} more)" if self.more else ""
        why = f": {self.reason}{more}" if self.reason else ""
        return f"{self.gate}: {said_so} {self.about}{why}".rstrip()


def gate_sentence(asked: Asked, standing: GateStanding) -> GateSentence:
    """The newest verdict of the gate, whichever its line."""
    gate = standing.stored.gate
    waits = [
        text
        for wait, text in zip(standing.waits, wait_texts(standing), strict=True)
        if wait.lack in _SERIOUS
    ]
    if not standing.lines:
        return GateSentence(
            gate=gate,
            word="",
            verdict="",
            href=urls.gate_url(gate),
            about="",
            reason="",
            more=0,
            waits=waits,
        )
    newest = standing.lines[0].standing.newest
    reasons = _reasons(newest)
    version = newest.subject.get("version", "")
    of = f"for {version}, " if version else ""
    return GateSentence(
        gate=gate,
        word=newest.decision,
        verdict=newest.id,
        href=urls.verdict_url(newest.id),
        about=f"{of}{age(newest.created_at, asked.now)} ago",
        reason=_short(reasons[0]) if reasons else "",
        more=max(len(reasons) - 1, 0),
        waits=waits,
    )


def _short(sentence: str) -> str:
    """A sentence that goes on and on does so in brackets."""
    if len(sentence) <= _LONGEST:
        return sentence
    before, bracket, _ = sentence[:_LONGEST].rpartition(" (")
    return f"{before if bracket else sentence[: _LONGEST - 1].rstrip()}…"


def _reasons(verdict: VerdictLine) -> list[str]:
    """What is violated first; new failures before all else."""
    ranks = {RuleOutcome.VIOLATED: 0, RuleOutcome.UNKNOWN: 1}
    loud = [rule for rule in verdict.rules if rule.blocking and rule.outcome in ranks]
    loud.sort(key=lambda rule: (ranks[rule.outcome], rule.kind != "new_failures"))
    return [rule.sentence for rule in loud]
