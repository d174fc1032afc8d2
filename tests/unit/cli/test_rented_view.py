"""What rented machines look like on a terminal: why there, what it was, what it cost."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable

import pytest
from rich.cells import cell_len
from rich.console import Console, RenderableType

from orchestrator.cli.view.costs import run_cost, spending
from orchestrator.cli.view.live_run import summary
from orchestrator.cli.view.plan import headroom_table, plan_table, shortages
from orchestrator.cli.view.provenance import provenance
from orchestrator.cli.watching.live_display import PlainTeller
from orchestrator.client.transport import read
from orchestrator.domain.charges import OWN_MACHINE
from orchestrator.domain.cost_response import RunCost, Spending
from orchestrator.domain.launch_plan import Plan
from orchestrator.domain.run_record import RunResponse
from tests.unit.cli import rented, runs
from tests.unit.cli.fake_controller import plan
from tests.unit.cli.golden import assert_golden
from tests.unit.cli.test_view import HOSTILE

WIDTHS = [60, 80, 120, 200]
Show = Callable[[Console], Iterable[RenderableType]]


def drawn(show: Show, width: int) -> str:
    """What a terminal without colours would get."""
    out = io.StringIO()
    console = Console(file=out, width=width, no_color=True, emoji=False, highlight=False)
    for part in show(console):
        console.print(part)
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


def told(*cells: runs.Json, width: int = 80) -> str:
    found = provenance(read(RunResponse, runs.run(*cells)))
    return drawn(lambda _: [found] if found is not None else [], width)


def flat(text: str) -> str:
    return " ".join(text.split())


def hostile_cell() -> runs.Json:
    evil = "".join(HOSTILE[:8]) + "[bold red]x[/bold red]"
    lines = [rented.decision(n, "refused", evil, evil, evil) for n in range(3)]
    names = ("name", "uuid", "driver", "compute_capability", "vendor")
    device = dict.fromkeys(names, evil)
    keys = (
        "place",
        "machine_id",
        "market",
        "zone",
        "image_id",
        "image_name",
        "priced",
        "instance_type",
    )
    return rented.a10g(
        decisions=lines,
        leases=[rented.lease(**dict.fromkeys(keys, evil))],
        attestation=rented.attestation(devices=[device], torch=evil, mismatch=evil),
        simulated=True,
    )


@pytest.mark.parametrize("width", WIDTHS)
def test_why_and_what_fit_every_window(width: int) -> None:
    text = told(rented.a10g(), rented.simulated(), width=width)
    assert all(cell_len(line) <= width for line in text.splitlines())
    assert_golden(f"provenance-{width}.txt", text)


def test_every_refusal_is_told_in_full_with_its_place() -> None:
    text = flat(told(rented.a10g(), width=60))
    assert "refused us-east-1b/spot capacity: InsufficientInstanceCapacity:" in text
    assert "try another zone" in text
    assert "chosen us-east-1a/spot" in text
    assert "us-east-1/i-0abc (g5.xlarge, spot) in us-east-1a" in text
    assert "ami-0123 Deep Learning OSS" in text
    assert "NVIDIA A10G, GPU-5f1c, compute 8.6, driver 580.65.06" in text
    assert "$0.1257 machine + $0.0034 disk + $0.0014 address = $0.1305" in text


def test_a_simulated_machine_is_called_one_everywhere() -> None:
    run = read(RunResponse, runs.run(rented.simulated()))
    assert "SIMULATED: no gate accepts this" in told(rented.simulated())
    picture = drawn(lambda _: [summary(run, now=runs.NOW, width=60)], 60)
    assert "SIMULATED: no gate accepts this" in picture
    lines = PlainTeller().tell(run, runs.NOW)
    assert any("SIMULATED: no gate accepts this" in line for line in lines)
    assert "none that its tools show" in told(rented.simulated())
    assert "SIMULATED" not in told(rented.a10g())


def test_packages_that_the_payload_does_not_name_are_counted() -> None:
    said = "jobs could import 2 packages of the interpreter that payload.toml does not name"
    cell = runs.cell("here", "done", outcome="passed", undeclared_packages=["numpy", "six"])
    run = read(RunResponse, runs.run(cell))
    assert said in drawn(lambda _: [summary(run, now=runs.NOW, width=100)], 100)
    plain = read(RunResponse, runs.run(cell | {"undeclared_packages": []}))
    assert "jobs could" not in drawn(lambda _: [summary(plain, now=runs.NOW, width=100)], 100)


def test_what_no_tool_showed_is_not_claimed() -> None:
    text = told(rented.a10g(attestation=None))
    assert "the machine did not tell" in text
    assert "A10G" not in text


def test_this_computer_needs_no_explanation() -> None:
    here = rented.lease(provider="local", place="local", price_usd_per_hour="0", market="")
    chosen = [rented.decision(1, "chosen", "local")]
    cell = runs.cell("local-cpu", "done", leases=[here], decisions=chosen)
    assert told(cell) == ""


@pytest.mark.parametrize("width", WIDTHS)
def test_hostile_text_stays_text(width: int) -> None:
    text = told(hostile_cell(), width=width)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\x07" not in text
    assert "[boldred]x[/boldred]" in "".join(text.split())
    assert all(cell_len(line) <= width for line in text.splitlines())
    assert all(c.isprintable() for line in text.splitlines() for c in line)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_bill_fits_every_window(width: int) -> None:
    text = drawn(lambda console: run_cost(console, read(RunCost, rented.costs())), width)
    assert all(cell_len(line) <= width for line in text.splitlines())
    assert "$1.1305" in text
    assert_golden(f"cost-{width}.txt", text)
    text = drawn(lambda console: spending(console, read(Spending, rented.spent())), width)
    assert all(cell_len(line) <= width for line in text.splitlines())
    assert "$1.2345" in text
    assert "nothing was charged" in flat(text)
    told = "the day's budget, SEATRIAL_BUDGET_DAY_USD of $20.00: $15.50 spent, $1.00 reserved"
    assert f"{told} (80 % or more)" in flat(text)


def test_runs_without_a_bill_are_counted_by_their_reason() -> None:
    spent = rented.spent() | {"no_cost": OWN_MACHINE}
    [run] = spent["runs"]
    own = run | {"total_usd": None, "no_cost": OWN_MACHINE}
    other = run | {"total_usd": None, "no_cost": "its cost is not stated"}
    free = run | {"total_usd": "0"}
    for totals, told in (
        ([own, own], OWN_MACHINE),
        (
            [own, own, other, free],
            f"{OWN_MACHINE} (2 runs), its cost is not stated (1 run), $0.00 (1 run)",
        ),
    ):
        spent["runs"] = totals
        text = drawn(lambda console: spending(console, read(Spending, spent)), 200)
        assert f"{len(totals)} runs since 2026" in text
        assert f": {told}\n" in text


def test_a_hostile_bill_stays_text() -> None:
    costs = rented.costs()
    evil = "".join(HOSTILE[:8])
    costs["run"] = evil
    costs["platforms"][0] |= {"cell": evil, "machines": [rented.lease(market=evil)]}
    costs["jobs"] = {evil: "1"}
    text = drawn(lambda console: run_cost(console, read(RunCost, costs)), 80)
    assert "\x1b" not in text
    assert "\u202e" not in text


def a_plan() -> runs.Json:
    answer = plan("aws", "1.00")
    rates = ["0.4521", "0.5", "1.006"]
    answer["cells"][0]["places"] = [
        {"name": f"us-east-1{zone}/spot", "price_usd_per_hour": usd}
        for zone, usd in zip("abc", rates, strict=True)
    ]
    l4 = rented.headroom("ok", needed=1)
    l4["quota"] |= {"name": "L4", "scope": "us-west1"}
    unknown = rented.headroom("unknown")
    unknown["level"] = {"limit": None, "used": None, "why_unknown": "no right"}
    answer["headroom"] = [rented.headroom("short"), l4, unknown]
    return answer


@pytest.mark.parametrize("width", WIDTHS)
def test_a_plan_is_compact_and_says_what_to_ask_for(width: int) -> None:
    shown = read(Plan, a_plan())
    text = drawn(lambda c: [plan_table(c, shown), headroom_table(shown), *shortages(shown)], width)
    assert all(cell_len(line) <= width for line in text.splitlines())
    if width >= 120:
        assert "us-east-1a/spot $0.4521/h, first of 3, up to $1.006/h" in text
    assert "short: aws needs 8 vCPU of G/VT spot in us-east-1, 4 free; ask L-3819A6DF" in flat(text)
    assert "unknown how much is free: no right" in flat(text)
    assert "needs 1" not in flat(text)
    assert_golden(f"plan-{width}.txt", text)


def test_why_a_cell_cannot_be_launched_is_a_line_of_its_own() -> None:
    answer = plan("aws", None)
    answer["cells"][0] |= {"places": [], "note": "no credentials; by its price list $1.06"}
    shown = read(Plan, answer)
    text = drawn(lambda c: [plan_table(c, shown), *shortages(shown)], 80)
    assert "none, see below  unknown" in text.splitlines()[1]
    assert text.splitlines()[2] == "local-cpu: no credentials; by its price list $1.06"


def test_a_plan_says_loudly_what_does_not_end_by_itself() -> None:
    answer = a_plan() | {"warnings": ["tpu: its machines do not end by themselves"]}
    said = [line.plain for line in shortages(read(Plan, answer))]
    assert said[-1] == "note: tpu: its machines do not end by themselves"


def test_places_without_a_price_are_not_called_cheap() -> None:
    answer = a_plan()
    answer["cells"][0]["places"][1]["price_usd_per_hour"] = None
    text = drawn(lambda console: [plan_table(console, read(Plan, answer))], 200)
    assert "first of 3, 1 price unknown" in text


@pytest.mark.parametrize("width", WIDTHS)
def test_a_kept_machine_is_shown_with_the_way_to_it(width: int) -> None:
    run = read(RunResponse, runs.run(rented.kept()))
    text = drawn(lambda _: [summary(run, now=runs.NOW, width=width)], width)
    assert "its machine is kept until 12:30:00 UTC" in text
    assert f"seatrial ssh {runs.RUN_ID} aws-a10g" in text
    assert f"seatrial cancel {runs.RUN_ID}" in text


def test_a_kept_machine_is_told_once() -> None:
    teller = PlainTeller()
    run = read(RunResponse, runs.run(rented.kept()))
    said = [line for _ in range(3) for line in teller.tell(run, runs.NOW) if "kept until" in line]
    assert len(said) == 1
    assert f"`seatrial ssh {runs.RUN_ID} aws-a10g`" in said[0]
