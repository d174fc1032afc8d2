"""Money over REST: bills whose parts come to their totals, quotas, and prices."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from orchestrator.api.app import create_app
from orchestrator.client.transport import read
from orchestrator.domain.budget import Budget, Period
from orchestrator.domain.cost_response import Spending
from orchestrator.domain.launch_plan import Plan, PlannedCell, shipments_in_words
from orchestrator.domain.machine import CredentialsError, Extent, Place
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.quota import BootImage, QuotaLevel
from orchestrator.domain.reuse_inputs import Prepared
from orchestrator.domain.units import most_usd, price
from orchestrator.domain.units import size as in_words
from runners.local import TRAITS as LOCAL
from runners.local import LocalProvider
from runners.provider_context import ProviderContext
from tests.integration.api_clouds import OFFER, Clouds, clouds
from tests.integration.api_context import MATRIX, Desk, archive, sha256
from tests.integration.wheel_making import wheel_bytes

COSTS = "/api/v1/costs"


@pytest.fixture
def here(api: Desk) -> Clouds:
    return clouds(api)


@pytest.fixture(scope="module")
def opened(shared_api: Desk) -> Clouds:
    return clouds(shared_api)


@pytest.fixture
def empty(opened: Clouds) -> Clouds:
    """Nothing ran here, and nothing will: only the provider's own answers change."""
    opened.provider.offered, opened.provider.level_now = (), QuotaLevel(8, 4)
    opened.provider.image_names = {}
    return opened


def finished(here: Clouds, key: str = "k") -> tuple[str, Decimal]:
    """A run of two cells on machines of 1000 and 30 seconds; its id and its cost."""
    run = str(here.desk.launch(key)["id"])
    for cell in ("here", "there"):
        here.desk.begin(run, cell)
        here.lease(run, cell, f"{key}-{cell}")
    here.desk.clock.move(seconds=30)
    short = here.settle(f"{key}-there")
    here.desk.clock.move(seconds=970)
    long = here.settle(f"{key}-here")
    here.desk.finish(run, "here", "there", outcome=Outcome.FAILED)
    return run, short + long


def usd(part: object) -> Decimal:
    assert isinstance(part, str)
    return Decimal(part)


def test_a_runs_bill_adds_up_in_every_direction(here: Clouds) -> None:
    run, cost = finished(here)
    bill = here.client.get(COSTS, params={"run": run}).json()
    # 1000 s and, by the minimum, 60 s at 1.006; disks and addresses by the time they were there
    assert usd(bill["bill"]["machine_usd"]) == Decimal("0.2794") + Decimal("0.0168")
    assert usd(bill["bill"]["disk_usd"]) == Decimal("0.0034") + Decimal("0.0001")
    assert usd(bill["bill"]["address_usd"]) == Decimal("0.0014") + Decimal("0.0000")
    assert usd(bill["bill"]["total_usd"]) == cost
    assert sum(usd(p["bill"]["total_usd"]) for p in bill["platforms"]) == cost
    assert sum(map(usd, bill["phases"].values())) == cost
    assert sum(map(usd, bill["jobs"].values())) + usd(bill["overhead_usd"]) == cost
    assert (bill["settled"], bill["simulated"], bill["max_usd"]) == (True, True, "9.00")
    assert (bill["validated_tests"], bill["usd_per_validated_test"]) == (0, None)
    (machine,) = bill["platforms"][0]["machines"]
    assert (machine["market"], machine["instance_type"]) == ("spot", "g5.xlarge")
    assert (machine["seconds"], machine["billed_s"]) == (1000.0, 1000)
    assert bill["platforms"][1]["machines"][0]["billed_s"] == 60


def test_a_plan_and_the_costs_tell_what_budgets_across_runs_have_left(here: Clouds) -> None:
    _, cost = finished(here)
    day = Budget(Period.DAY, 2 * cost)
    context = replace(here.desk.context, budgets=(day, Budget(Period.MONTH, Decimal(100))))
    here.provider.offered = (OFFER,)
    client = here.desk.speak(create_app(context, guard=None))
    plan = client.post("/api/v1/plan", json={"matrix": MATRIX}).json()
    told = read(Spending, client.get(COSTS).json())
    metrics = client.get("/metrics").text
    assert plan["warnings"][0].startswith(
        f"the day's budget, SEATRIAL_BUDGET_DAY_USD of {price(2 * cost)}: ${cost:.2f} spent, "
        "$0.00 reserved; one attempt of every cell may cost $"
    )
    assert [use.warn_percent for use in told.budgets] == [50, 0]
    assert told.budgets[0].settled_usd == cost
    assert f'seatrial_budget_used_usd{{period="day"}} {float(cost)}' in metrics
    assert 'seatrial_budget_limit_usd{period="month"} 100.0' in metrics
    for name in OPERATED_BY:
        assert f"# TYPE seatrial_{name} gauge" in metrics


def test_the_bill_of_a_run_under_way_is_not_settled(here: Clouds) -> None:
    run = str(here.desk.launch()["id"])
    assert here.client.get(COSTS, params={"run": run}).json()["settled"] is False
    here.desk.begin(run, "here")
    here.lease(run, "here", "lease-1")
    here.desk.clock.move(hours=1)
    bill = here.client.get(COSTS, params={"run": "latest"}).json()
    assert (bill["run"], bill["settled"]) == (run, False)
    assert bill["bill"]["total_usd"] == "1.0233"


def test_an_own_machine_costs_nothing_in_the_same_words_everywhere(here: Clouds) -> None:
    run = str(here.desk.launch()["id"])
    here.desk.begin(run, "here")
    free = replace(OFFER, price_usd_per_hour=Decimal(0), disk_usd_per_hour=Decimal(0))
    free = replace(free, address_usd_per_hour=Decimal(0))
    here.lease(run, "here", "lease-1", offer=free, provider="local")
    said = (None, "own machine: nothing is charged")
    for is_settled in (False, True):
        here.desk.clock.move(minutes=5)
        if is_settled:
            here.settle("lease-1")
        [listed] = here.client.get("/api/v1/runs").json()["items"]
        shown = here.client.get(f"/api/v1/runs/{run}").json()
        for told in (listed, shown, shown["cells"][0]):
            assert (told["cost_usd"], told["no_cost"]) == said
        bill = here.client.get(COSTS, params={"run": run}).json()
        for told in (bill, bill["platforms"][0]):
            assert (told["bill"], told["no_cost"]) == said
        spent = here.client.get(COSTS).json()
        assert (spent["runs"][0]["total_usd"], spent["runs"][0]["no_cost"]) == said
        assert (spent["providers"][0]["bill"], spent["providers"][0]["no_cost"]) == said
        assert (spent["no_cost"], spent["unknown_cost_runs"]) == (said[1], 0)


def test_without_a_run_the_last_days_are_summed_by_provider(here: Clouds) -> None:
    _, first = finished(here, "one")
    here.desk.clock.move(days=40)
    confirmation_run, second = finished(here, "two")
    said = here.client.get(COSTS).json()
    assert usd(said["bill"]["total_usd"]) == second == usd(said["simulated_usd"])
    assert [r["run"] for r in said["runs"]] == [confirmation_run]
    (fake,) = said["providers"]
    assert (fake["provider"], fake["machines"], fake["seconds"]) == ("fake", 2, 1030.0)
    today = here.desk.clock.now().astimezone(UTC).date()
    assert said["since"] == f"{today - timedelta(days=29)}T00:00:00Z"
    both = here.client.get(COSTS, params={"days": 60}).json()
    assert usd(both["bill"]["total_usd"]) == first + second
    assert usd(both["runs"][0]["total_usd"]) == second


@pytest.mark.parametrize("why", ["", "others can reach it"])
def test_a_provider_that_is_refused_says_why(empty: Clouds, why: str) -> None:
    settings = {"local_jobs_refused": why} if why else {}
    stores = empty.context.stores
    local = LocalProvider(ProviderContext(stores.static_hosts, settings=settings))
    traits = {"local": LOCAL, **empty.context.traits}
    context = replace(empty.context, traits=traits, provider=lambda _: local)
    client = empty.desk.speak(create_app(context, guard=None))
    told = {one["provider"]: one for one in client.get("/api/v1/platforms").json()["items"]}
    assert (told["local"]["refused"], told["fake"]["refused"]) == (why, "")


@pytest.mark.parametrize("params", [{"run": "nope"}, {"run": ""}])
def test_an_unknown_run_has_no_bill(empty: Clouds, params: dict[str, str]) -> None:
    assert empty.client.get(COSTS, params=params).status_code == 404


@pytest.mark.parametrize("days", ["0", "-1", "9999999999999", "x"])
def test_a_span_of_days_must_make_sense(empty: Clouds, days: str) -> None:
    assert empty.client.get(COSTS, params={"days": days}).status_code == 422


def test_show_tells_what_each_machine_was_and_cost(here: Clouds) -> None:
    run, cost = finished(here)
    shown = here.client.get(f"/api/v1/runs/{run}").json()
    assert usd(shown["cost_usd"]) == cost
    lease = shown["cells"][0]["leases"][0]
    assert lease["bill"] == {
        "machine_usd": "0.2794",
        "disk_usd": "0.0034",
        "address_usd": "0.0014",
        "total_usd": "0.2842",
    }
    assert (lease["priced"], lease["zone"]) == ("table of 2026-01-01", "north")
    assert lease["market"] == "spot"


def test_prices_are_listed_and_read_anew(here: Clouds) -> None:
    listed = here.client.get(f"{COSTS}/prices").json()["items"]
    assert [(p["place"], p["usd_per_hour"]) for p in listed] == [("north", "1.01")]
    told = here.client.post(f"{COSTS}/refresh").json()
    assert [(p["place"], p["usd_per_hour"]) for p in told["kept"]] == [("north", "1.006")]
    assert [(d["price"]["place"], d["reason"]) for d in told["uncertain"]] == [
        ("south", "not more than nothing")
    ]
    assert told["unread"] == {}
    stored = here.desk.context.stores.prices.of("fake")
    assert [(p.place, p.usd_per_hour) for p in stored] == [("north", Decimal("1.006"))]


def test_a_provider_that_does_not_tell_its_prices_is_named(here: Clouds) -> None:
    here.provider.is_down = True
    told = here.client.post(f"{COSTS}/refresh").json()
    assert told["unread"] == {"fake": "the price list is not answered"}


@pytest.mark.parametrize(
    ("level", "room", "sentence"),
    [
        (QuotaLevel(16, 4), "ok", "needs 4 vCPU of G/VT spot in nowhere, 12 free"),
        (QuotaLevel(8, 8), "short", "0 free; ask L-3819A6DF for >= 12"),
        (
            QuotaLevel(None, None, "no right to ask"),
            "unknown",
            "unknown how much is free: no right",
        ),
    ],
)
def test_a_plan_says_what_room_the_quotas_leave(
    empty: Clouds, level: QuotaLevel, room: str, sentence: str
) -> None:
    empty.provider.level_now = level
    plan = empty.client.post("/api/v1/plan", json={"matrix": MATRIX}).json()
    first, second = plan["headroom"]
    quota = first["quota"]
    assert (first["status"], quota["scope"], first["needed"]) == (room, "nowhere", 4)
    assert (first["level"]["limit"], first["level"]["used"]) == (level.limit, level.used)
    assert (quota["code"], quota["name"], quota["unit"]) == ("L-3819A6DF", "G/VT spot", "vCPU")
    assert sentence in first["sentence"]
    assert second["quota"]["scope"] == "north"


def test_a_plan_says_that_nothing_is_rented_without_a_price(empty: Clouds) -> None:
    empty.provider.offered = (Place("dark"), Place("darker"))
    for cell in empty.client.post("/api/v1/plan", json={"matrix": MATRIX}).json()["cells"]:
        assert cell["worst_usd"] is None
        assert "at any of 2 places, and limits.allow_unknown_price is false" in cell["note"]


def test_a_hold_raises_the_worst_that_a_plan_can_cost(empty: Clouds) -> None:
    plans = [
        empty.client.post("/api/v1/plan", json={"matrix": MATRIX, "hold_minutes": m}).json()
        for m in (0, 60)
    ]
    held = usd(plans[1]["worst_usd"]) - usd(plans[0]["worst_usd"])
    assert held == 2 * Decimal("0.50")  # an hour more of each machine


def test_a_refused_place_costs_nothing_and_is_shown(here: Clouds) -> None:
    run = str(here.desk.launch()["id"])
    here.desk.begin(run, "here")
    here.lease(run, "here", "lease-1", offer=replace(OFFER, name="far"))
    leases, at = here.desk.database.stores.leases, here.desk.clock.now()
    leases.gone("lease-1", at=at, cost_usd=Decimal(0), refusal="capacity: none <b>left</b>")
    bill = here.client.get(COSTS, params={"run": run}).json()
    assert usd(bill["bill"]["total_usd"]) == 0
    shown = here.client.get(f"/api/v1/runs/{run}").json()["cells"][0]["leases"][0]
    assert shown["refusal"] == "capacity: none <b>left</b>"


def test_a_plan_names_where_one_market_has_no_price(empty: Clouds) -> None:
    dark = Place("east-1a/spot", region="east-1", market="spot")
    empty.provider.offered = (OFFER, dark)
    asked = [MATRIX, MATRIX.replace('"9.00"}', '"9.00", allow_unknown_price: true}')]
    plans = [empty.client.post("/api/v1/plan", json={"matrix": one}).json() for one in asked]
    told = [
        [
            said
            for said in plan["warnings"]
            if said.startswith("no price is known for spot in east-1:")
        ]
        for plan in plans
    ]
    assert [len(said) for said in told] == [1, 0], "with that key it is rented"


@pytest.mark.parametrize(
    ("days", "more", "worst", "words"),
    [
        (31, "", True, "prices are at least 31 days old"),
        (91, "", False, "prices are at least 91 days old"),
        (91, ", allow_unknown_price: true", True, "prices are at least 91 days old"),
    ],
)
def test_a_plan_reckons_with_no_price_older_than_ninety_days(
    empty: Clouds, days: int, more: str, worst: bool, words: str
) -> None:
    now = empty.desk.context.clock.now()
    old = replace(OFFER, priced_at=now - timedelta(days=days))
    empty.provider.offered = (old,)
    matrix = MATRIX.replace('"9.00"}', f'"9.00"{more}}}')
    plan = empty.client.post("/api/v1/plan", json={"matrix": matrix}).json()
    assert plan["warnings"][0].startswith(words)
    cell = plan["cells"][0]
    assert (cell["worst_usd"] is not None) is worst
    assert ("older than 90 days" in cell["note"]) is not worst


NEEDY = """\
schema = 1
name = "proof"
version = "1.10"
[env.image]
pip = ["torch~=2.9.0"]
[[job]]
id = "any"
kind = "demo"
command = ["{python}", "demo.py"]
[[job]]
id = "fp8"
kind = "demo"
command = ["{python}", "demo.py"]
compute_capability = "8.9"
"""
A10G = """accelerator: {vendor: nvidia, name: A10G, compute_capability: "8.6"}"""
TPU = "accelerator: {vendor: google, name: TPU v5e}"


@pytest.fixture
def links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All that pip finds: a torch that brings CUDA."""
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    for name, version, needs in (
        ("torch", "2.9.1+cu128", ("nvidia-cublas-cu12",)),
        ("nvidia_cublas_cu12", "12.8", ()),
    ):
        wheel = tmp_path / f"{name}-{version}-py3-none-any.whl"
        wheel.write_bytes(wheel_bytes(name, version, *needs))
    return tmp_path


def test_a_plan_says_what_cannot_run_on_a_platform_or_is_not_meant_for_it(
    empty: Clouds, links: Path
) -> None:
    data = archive(NEEDY)
    empty.client.put(f"/api/v1/payloads/{sha256(data)}", content=data).raise_for_status()
    matrix = MATRIX.replace("{id: here, provider: fake}", f"{{id: here, provider: fake, {A10G}}}")
    matrix = matrix.replace("provider: fake, locations", f"provider: fake, {TPU}, locations")
    body = {"matrix": matrix, "payload": sha256(data)}
    plan = empty.client.post("/api/v1/plan", json=body).json()
    assert [cell["cell"]["jobs"] for cell in plan["cells"]] == [["any"], ["any"]]
    unfit, tpu = plan["warnings"]
    assert tpu.endswith(": it needs an NVIDIA GPU of compute capability 8.9")
    assert unfit == (
        "job fp8 is not sent to here: it needs compute capability 8.9, and the platform has 8.6"
    )
    here, there = plan["cells"]
    assert here["note"] == ""
    assert there["note"].startswith(
        "the environment's packages include CUDA (nvidia-cublas-cu12 12.8, torch 2.9.1+cu128), and "
        "there has no NVIDIA GPU: they are not sent while it costs."
    )
    assert "torch==2.9.1+cpu" in there["note"]


def planned(empty: Clouds, limits: str = "", pip: str = "torch~=2.9.0", more: str = "") -> Any:
    """The plan of a payload that needs packages."""
    data = archive(NEEDY.replace("torch~=2.9.0", pip).replace('"]\n[[', f'"]{more}\n[[', 1))
    empty.client.put(f"/api/v1/payloads/{sha256(data)}", content=data).raise_for_status()
    matrix = MATRIX.replace('"9.00"}', f'"9.00"{limits}}}')
    body = {"matrix": matrix, "payload": sha256(data)}
    return empty.client.post("/api/v1/plan", json=body).json()


def test_a_plan_says_how_many_files_of_which_size_are_sent_from_where(
    empty: Clouds, links: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reuse, reads = empty.desk.context.stores.reusable_results, []
    prepared = reuse.newest_preparations

    def counted(_: object, limit: int) -> list[Prepared]:
        reads.append(limit)
        return prepared(limit)

    monkeypatch.setattr(type(reuse), "newest_preparations", counted)
    size = sum(path.stat().st_size for path in links.glob("torch*")) + sum(
        path.stat().st_size for path in links.glob("nvidia*")
    )
    empty.provider.image_names = dict.fromkeys(("here", "there"), "an-image")
    plan = read(Plan, planned(empty))
    assert len(reads) == 1, "once a plan, and not once a cell"
    sent = plan.shipments[0]
    assert (sent.files, sent.packages_bytes, sent.unknown) == (2, size, {})
    (told,) = shipments_in_words(plan.shipments)
    assert told.startswith(f"sent to here, there: 3 files, {in_words(sent.payload_bytes + size)}: ")
    assert "2 packages" in told
    assert "from the controller; calculated for Python 3." in told
    assert told.endswith("which is assumed; all else is in the image an-image")
    assert all(cell.is_launchable for cell in plan.cells)


def test_more_than_may_be_shipped_cannot_be_launched(empty: Clouds, links: Path) -> None:
    for cell in read(Plan, planned(empty, ", max_shipped_gb: 0.000001")).cells:
        assert not cell.is_launchable
        assert "are more than limits.max_shipped_gb of 1.0 kB" in cell.note
    own = read(Plan, planned(empty, ", max_shipped_gb: 0.000001", more="\nindex = true"))
    assert all(cell.is_launchable for cell in own.cells)
    assert "or the packages from the machine's own index" in shipments_in_words(own.shipments)[0]


def test_requirements_that_do_not_resolve_here_are_told_before_anything_is_rented(
    empty: Clouds, links: Path
) -> None:
    """A machine that nobody has seen may have them, so that it is rented all the same."""
    plan = read(Plan, planned(empty, pip="torch==2.7.0"))
    assert all(cell.is_launchable for cell in plan.cells)
    told = shipments_in_words(plan.shipments)[0]
    assert "unknown beyond that: torch==2.7.0 (no wheel of torch==2.7.0 for Python 3." in told
    assert "the newest that there are for it are 2.9.1+cu128" in told


def test_a_cell_that_costs_more_than_a_limit_at_its_cheapest_cannot_be_launched(
    empty: Clouds,
) -> None:
    dear = replace(OFFER, name="far", price_usd_per_hour=Decimal(900))

    def cells(*places: Place, budgets: tuple[Budget, ...] = ()) -> list[PlannedCell]:
        empty.provider.offered = places
        client = empty.desk.speak(create_app(replace(empty.context, budgets=budgets), guard=None))
        plan = client.post("/api/v1/plan", json={"matrix": MATRIX}).json()
        return list(read(Plan, plan).cells)

    assert all(cell.is_launchable for cell in cells(dear, OFFER))
    for cell in cells(dear):
        assert not cell.is_launchable
        assert "which does not fit the run's budget, limits.max_usd of $9.00" in cell.note
    for cell in cells(OFFER, budgets=(Budget(Period.MONTH, Decimal("0.001")),)):
        assert not cell.is_launchable
        assert "SEATRIAL_BUDGET_MONTH_USD of $0.001: $0.00 spent" in cell.note


def test_credentials_that_an_image_needs_are_missed_by_the_plan(
    empty: Clouds, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> BootImage:
        raise CredentialsError("no usable credentials", extent=Extent.PROJECT)

    monkeypatch.setattr(empty.provider, "image", refused)
    plan = read(Plan, empty.client.post("/api/v1/plan", json={"matrix": MATRIX}).json())
    assert [cell.note for cell in plan.cells] == ["no usable credentials"] * 2
    assert not any(cell.is_launchable for cell in plan.cells)


def test_a_plan_of_a_cloud_that_is_not_reached_says_its_list_price_with_its_date(
    empty: Clouds, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> tuple[Place, ...]:
        raise CredentialsError("no credentials", extent=Extent.PROJECT)

    def notes(worst_usd: str | None = None, matrix: str = MATRIX, hold: int = 0) -> set[str]:
        asked = {"matrix": matrix, "hold_minutes": hold}
        plan = read(Plan, empty.client.post("/api/v1/plan", json=asked).json())
        assert {cell.worst_usd for cell in plan.cells} == {worst_usd and Decimal(worst_usd)}
        assert not any(cell.is_launchable for cell in plan.cells)
        return {cell.note for cell in plan.cells}

    def listing(*places: Place) -> None:
        listed = lambda _: places  # noqa: E731
        monkeypatch.setattr(empty.provider, "listed_places", listed, raising=False)

    monkeypatch.setattr(empty.provider, "places", refused)
    assert notes() == {"no credentials"}
    facts = {"instance_type": "g5.xlarge", "priced": "table 2026-11-21"}
    dear = Place("a/g5.xlarge", price_usd_per_hour=Decimal(2), **facts)
    listing(replace(dear, price_usd_per_hour=Decimal(1)), dear)
    told = "no credentials; by its price list, an attempt costs at most "
    parts = "max_minutes 30, 10 to launch, 15 to terminate"
    source = "of g5.xlarge at $2.00/h (table 2026-11-21)"
    short = MATRIX.replace("limits: {", "limits: {max_minutes: 30, ")
    assert notes("1.84", short) == {f"{told}$1.84: 55 minutes ({parts}) {source}"}
    held = f"{told}$2.17: 65 minutes ({parts}, 10 to hold it) {source}"
    assert notes("2.17", short, 10) == {held}
    anywhere = short.replace("limits: {", "limits: {allow_unknown_price: true, ")
    others = "places without a known price may be rented, too"
    assert notes(None, anywhere) == {f"{told}$1.84: 55 minutes ({parts}) {source}; {others}"}
    unknown = "no credentials; its cost is unknown: "
    listing(replace(dear, priced_at=empty.desk.context.clock.now() - timedelta(days=91)))
    old = "every listed price is older than 90 days (table 2026-11-21)"
    assert notes() == {f"{unknown}{old}"}
    listing()
    assert notes() == {f"{unknown}no price is listed for it"}
    monkeypatch.setattr(empty.provider, "listed_places", refused, raising=False)
    assert notes() == {"no credentials"}


def test_the_costs_of_a_plan_sum_to_its_last_line(
    empty: Clouds, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = {"instance_type": "g5.xlarge", "priced": "table 2026-11-21"}
    place = Place("a/g5.xlarge", price_usd_per_hour=Decimal("1.2341"), **facts)
    monkeypatch.setattr(empty.provider, "places", lambda _: (place,))
    plan = read(Plan, empty.client.post("/api/v1/plan", json={"matrix": MATRIX}).json())
    shown = [Decimal(most_usd(cell.worst_usd).removeprefix("$")) for cell in plan.cells]
    assert len(shown) == 2
    assert sum(shown) == plan.worst_usd == plan.known_usd
    assert most_usd(plan.worst_usd) == f"${sum(shown)}"


def test_a_plan_says_when_platforms_would_run_different_builds_of_torch(empty: Clouds) -> None:
    def warned() -> list[str]:
        found: list[str] = empty.client.post("/api/v1/plan", json={"matrix": MATRIX}).json()[
            "warnings"
        ]
        return found

    assert warned() == []
    empty.provider.image_names = {
        "here": "AMI GPU PyTorch 2.13 (Ubuntu 26.04)",
        "there": "pytorch-2-9-cu129-ubuntu-2404",
    }
    (told,) = warned()
    assert told.startswith("the platforms would run different builds of torch: here 2.13 (AMI GPU")
    empty.provider.image_names = dict.fromkeys(("here", "there"), "pytorch-2-9-cu129-ubuntu-2404")
    assert warned() == []


OPERATED_BY = (
    *("cells", "machines_live", "launch_seconds", "ingest_lag_seconds"),
    *("cost_per_hour_usd", "orphans"),
)
"""What a person who operates a controller looks at."""
