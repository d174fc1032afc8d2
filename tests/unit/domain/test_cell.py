from __future__ import annotations

from datetime import UTC, datetime

import pytest

from orchestrator.domain.cell import TRANSITIONS, Cell, CellState, IllegalTransitionError

AT = datetime(2026, 1, 1, tzinfo=UTC)
HOLDS = set(CellState) - {CellState.QUEUED, CellState.DONE}
"""States in which a machine may exist."""


def reachable(start: CellState, *, without: CellState) -> set[CellState]:
    found, ahead = set(), [start]
    while ahead:
        for state in TRANSITIONS[ahead.pop()] - found - {without}:
            found.add(state)
            ahead.append(state)
    return found


@pytest.mark.parametrize("state", sorted(HOLDS - {CellState.RELEASING}))
def test_no_way_leads_past_releasing(state: CellState) -> None:
    around = reachable(state, without=CellState.RELEASING)
    assert not around & {CellState.QUEUED, CellState.DONE}


@pytest.mark.parametrize("state", list(CellState))
def test_every_state_can_reach_the_end(state: CellState) -> None:
    everything = reachable(state, without=CellState.QUEUED) | {state}
    assert CellState.DONE in everything
    if state in HOLDS:
        assert CellState.RELEASING in everything


def test_what_ran_is_collected_before_it_is_released() -> None:
    assert TRANSITIONS[CellState.RUNNING] == {CellState.COLLECTING}
    assert TRANSITIONS[CellState.COLLECTING] == {CellState.DIAGNOSING, CellState.RELEASING}
    assert TRANSITIONS[CellState.DIAGNOSING] == {CellState.RELEASING}


@pytest.mark.parametrize("origin", CellState)
def test_only_steps_of_the_table_are_taken(origin: CellState) -> None:
    cell = Cell("c", "r", "here", 0, state=origin)
    for target in CellState:
        if target in TRANSITIONS[origin]:
            moved = cell.to(target, at=AT)
            assert (moved.state, moved.entered_at) == (target, AT)
        else:
            with pytest.raises(IllegalTransitionError, match=f"here: {origin} -> {target}"):
                cell.to(target, at=AT)


def test_a_state_is_reached_by_being_there_or_past_it() -> None:
    cell = Cell("c", "r", "here", 0, state=CellState.RUNNING)
    assert cell.has_reached(CellState.RUNNING)
    assert cell.has_reached(CellState.PLACING)
    assert not cell.has_reached(CellState.COLLECTING)
