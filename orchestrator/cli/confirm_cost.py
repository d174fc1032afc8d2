"""The question before anything is rented."""

from __future__ import annotations

import typer

from orchestrator.cli.errors import CliError
from orchestrator.cli.responses import ShownPlan
from orchestrator.cli.safe_text import one_line
from orchestrator.cli.session import Session
from orchestrator.cli.view.plan import plan_table, shortages, totals
from orchestrator.domain.units import plural, usd


def ask(session: Session, plan: ShownPlan, *, yes: bool) -> None:
    """Show the plan, and have a person agree to what costs money. Raises CliError."""
    rented = plan.rented(session.wiring.traits)
    if rented:
        session.err.print(plan_table(session.err, plan))
        for line in shortages(plan):
            session.err.print(line)
    session.say(f"plan: {totals(plan)}")
    if not rented or yes:
        return
    rented = [cell for cell in rented if cell.is_offered] or rented
    names = ", ".join(one_line(cell.id) for cell in rented)
    if not session.is_interactive:
        raise CliError(
            f"{names} would be rented, for at most {usd(plan.worst_usd)} an attempt,"
            " and nobody can be asked here: say -y to agree. Nothing was launched."
        )
    if not typer.confirm(f"Rent {plural(len(rented), 'machine')}?", err=True):
        raise CliError("Nothing was launched.")
