"""machines, cost: rented machines and their costs."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from orchestrator.cli.commands.emergency_stop import stop_all
from orchestrator.cli.commands.options import JsonOption
from orchestrator.cli.errors import NO_VERDICT, CliError
from orchestrator.cli.safe_text import one_line
from orchestrator.cli.session import Session, is_confirmed, session_of
from orchestrator.cli.view.costs import (
    prices_table,
    refreshed,
    run_cost,
    spending,
)
from orchestrator.cli.view.tables import Layout, fitting
from orchestrator.client.errors import RefusalError
from orchestrator.client.seatrial import Seatrial
from orchestrator.domain.cost_response import RunCost
from orchestrator.domain.inventory import InventoryResponse, ResourceResponse
from orchestrator.domain.units import plural

_MACHINES = Layout(
    titles=("machine", "provider", "kind", "ownership", "state", "run", "cell", "expires (UTC)"),
    first_to_go=("state", "kind", "expires (UTC)", "provider", "cell"),
    whole=("ownership",),
)
_LOUD = frozenset({"orphan", "expired"})
_GONE = 404


def machines_command(
    context: typer.Context,
    orphans: Annotated[
        bool,
        typer.Option("--orphans", help="Only resources without an owner: orphan, expired, idle."),
    ] = False,
    terminate: Annotated[
        bool,
        typer.Option("--terminate", help="Terminate all resources without an owner, after asking."),
    ] = False,
    everything: Annotated[
        bool,
        typer.Option(
            "--all",
            help="With --terminate: cancel every run and end every machine of the project,"
            " of every controller; works without a controller and without its database.",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="End it without asking.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the project's cloud resources with their owners; terminate those without one."""
    session = session_of(context)
    if everything and not terminate:
        raise CliError("--all goes with --terminate; without both, every machine is listed anyway.")
    if everything:
        stop_all(session, yes=yes, as_json=as_json)
        return
    client = session.client()
    answer = client.machines(orphans=orphans or terminate)
    survey = answer.record
    ended: list[str] = []
    if terminate:
        ended = _terminate(session, client, survey, yes=yes)
    if as_json:
        session.print_json(answer.json | {"ended": ended} if terminate else answer.json)
    elif not terminate:
        _list(session, survey, orphans=orphans)
    _raise_unread(survey)


def cost_command(
    context: typer.Context,
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN]",
            help="A run's id, the beginning of one, or `latest`.",
            show_default=False,
        ),
    ] = None,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Read the prices anew from the providers first.")
    ] = False,
    prices: Annotated[bool, typer.Option("--prices", help="List the prices in use.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the cost of a run; without one, of the runs of the last 30 days."""
    session = session_of(context)
    client = session.client() if refresh else session.reader()
    alone = not prices and run is None
    if refresh:
        _refresh(session, client, as_json=as_json and alone)
        if alone:
            return
    if prices:
        _prices(session, client, as_json=as_json)
        return
    answer = client.costs() if run is None else client.run_cost(run)
    if as_json:
        session.print_json(answer.json)
        return
    costs = answer.record
    shown = (
        run_cost(session.out, costs) if isinstance(costs, RunCost) else spending(session.out, costs)
    )
    for part in shown:
        session.out.print(part)


def _refresh(session: Session, client: Seatrial, *, as_json: bool) -> None:
    """Refresh the prices. Raises CliError if no provider returned any."""
    told = client.refresh_prices()
    if as_json:
        session.print_json(told.json)
    for line in refreshed(told.record):
        session.say(line)
    if told.record.unread and not told.record.kept:
        raise CliError("No provider told its prices.", code=NO_VERDICT)


def _prices(session: Session, client: Seatrial, *, as_json: bool) -> None:
    answer = client.prices()
    if as_json:
        session.print_json(answer.json.get("items"))
        return
    known = list(answer.records)
    if known:
        session.out.print(prices_table(session.out, known))
    else:
        session.say(
            "No price is known: each provider that rents machines is an extra, with prices of"
        )
        session.say("its own: `pip install 'seatrial[aws]'`.")


def _terminate(
    session: Session, client: Seatrial, inventory: InventoryResponse, *, yes: bool
) -> list[str]:
    """Terminate every found resource; return the terminated ones. Raises CliError."""
    if not inventory.items:
        session.say(_nothing("without an owner", inventory))
        return []
    session.err.print(fitting(session.err, _MACHINES, [_row(sight) for sight in inventory.items]))
    what = plural(len(inventory.items), "of these things", "of these things")
    if not yes and not session.is_interactive:
        raise CliError("There is no terminal to ask on: say -y to end these. Nothing was ended.")
    if not yes and not is_confirmed(f"End {what} now?"):
        raise CliError("Nothing was ended.")
    ended, failed = [], []
    for sight in inventory.items:
        try:
            client.terminate_machine(sight.provider, sight.id)
        except RefusalError as error:
            if error.status != _GONE:
                failed.append(f"{sight.provider} {sight.id}: {error.lines[0]}")
                continue
        session.say(
            f"ended: {one_line(sight.provider)} {one_line(sight.kind)} {one_line(sight.id)}"
        )
        ended.append(f"{sight.provider}/{sight.id}")
    if failed:
        raise CliError(*(one_line(line) for line in failed), code=NO_VERDICT)
    return ended


def _list(session: Session, inventory: InventoryResponse, *, orphans: bool) -> None:
    if inventory.items:
        session.out.print(
            fitting(session.out, _MACHINES, [_row(sight) for sight in inventory.items])
        )
        return
    what = "without an owner" if orphans else "of this project"
    session.say(_nothing(what, inventory))


def _nothing(what: str, inventory: InventoryResponse) -> str:
    """Return a sentence about an empty inventory, with the clouds that answered."""
    if not inventory.asked:
        return (
            "No cloud was asked: the controller has credentials of none, and its ledger has no"
            " machine of one. Cells on this computer and on your own hosts are in `seatrial show`."
        )
    answered = [one_line(name) for name in inventory.asked if name not in inventory.unread]
    if not answered:
        return "Nothing is known: no cloud answered."
    return f"Nothing {what} is there, as far as {', '.join(answered)} answered."


def _raise_unread(inventory: InventoryResponse) -> None:
    """Raise CliError for providers that could not be read: the list is incomplete."""
    lines = [
        f"{one_line(n)} could not be asked: {one_line(w)}" for n, w in inventory.unread.items()
    ]
    if lines:
        raise CliError(*lines, code=NO_VERDICT)


def _row(resource: ResourceResponse) -> dict[str, Text]:
    style = "bold red" if resource.ownership in _LOUD else ""
    simulated = " SIMULATED" if resource.simulated else ""
    texts = (
        Text(one_line(resource.id)),
        Text(one_line(resource.provider)),
        Text(one_line(resource.kind)),
        Text(one_line(resource.ownership) + simulated, style=style),
        Text(one_line(resource.state)),
        Text(one_line(resource.run) or "–"),
        Text(one_line(resource.cell) or "–"),
        Text(f"{resource.expires_at:%Y-%m-%d %H:%M}" if resource.expires_at else "–"),
    )
    return dict(zip(_MACHINES.titles, texts, strict=True))
