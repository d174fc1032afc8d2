"""What gates wait for, in words."""

from __future__ import annotations

from orchestrator.application.gate_status import GateStanding, Lack, Wait
from orchestrator.dashboard import urls
from orchestrator.dashboard.labels import cut
from orchestrator.dashboard.table import Text

RUN_SHOWN = 12
"""Letters of an id that a sentence has room for."""
_LONGEST = 160


def wait_texts(standing: GateStanding) -> list[Text]:
    """Each of them, with a way to it."""
    return [_text(standing, wait) for wait in standing.waits]


def _text(standing: GateStanding, wait: Wait) -> Text:
    gate = urls.gate_url(standing.stored.gate)
    match wait.lack:
        case Lack.VERDICT:
            note = f"seatrial gate check {standing.stored.gate}"
            return Text("its first verdict", gate, note=note)
        case Lack.JUDGEMENT:
            return Text(f"a verdict on run {wait.run[:RUN_SHOWN]}", urls.run_url(wait.run))
        case Lack.RUN:
            return Text(f"run {wait.run[:RUN_SHOWN]}, which goes on", urls.run_url(wait.run))
        case Lack.FRESH_EVIDENCE:
            believed = standing.policy.spec.evidence.max_age
            return Text(f"evidence that is not older than {believed}")
        case Lack.POLICY:
            return Text("a verdict by its present policy", f"{gate}#policy")
        case Lack.APPROVAL:
            return Text(cut(wait.sentence, _LONGEST), f"{gate}#approvals")
        case Lack.EVIDENCE:
            return Text(cut(wait.sentence, _LONGEST))
