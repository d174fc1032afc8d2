"""Small things: safe text, units, problem documents, the feed, settings of a launch."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from orchestrator.adapters.files.documents import FileDocuments
from orchestrator.cli.errors import CliError, located
from orchestrator.cli.launch_request import with_overrides
from orchestrator.cli.safe_text import fit, fit_end, json_text, log_line, one_line, pad
from orchestrator.client.run_requests import StreamedEvent, read_events
from orchestrator.domain import launch_plan, units
from orchestrator.domain.document_problems import Problem

MATRIX = """\
apiVersion: seatrial/v1
kind: Matrix
metadata: {name: release}
subject: {name: torchbridge, version: "1.10"}
limits: {max_usd: "4.00"}
secrets: {HF_TOKEN: {from: env}}
platforms:
  - {id: local-cpu, provider: local}
  - id: aws-a10g
    provider: aws
    instance_type: g5.xlarge
    accelerator: {vendor: nvidia, name: A10G}
    market: [spot, on-demand]
    disk_gb: 150
jobs:
  - {select: "*", on: all}
"""


@pytest.mark.parametrize(
    ("amount", "said"),
    [
        ("1.006", "$1.006"),
        ("1.2000000000", "$1.20"),
        ("0.70683", "$0.70683"),
        ("0", "$0.00"),
        ("1.027666666666666666666666667", "$1.02767"),
        ("0.000136986301369863013698630137", "$0.000137"),
        ("100", "$100.00"),
    ],
)
def test_a_price_has_the_providers_digits_and_no_quotients(amount: str, said: str) -> None:
    assert units.price(Decimal(amount)) == said


@pytest.mark.parametrize(
    ("amount", "said"),
    [
        ("0.3041", "$0.31"),
        ("0.3000", "$0.30"),
        ("0.00123", "$0.0013"),
        ("0.0100", "$0.01"),
        ("0", "$0.00"),
        (None, "unknown"),
    ],
)
def test_a_maximum_is_rounded_up(amount: str | None, said: str) -> None:
    assert units.most_usd(None if amount is None else Decimal(amount)) == said


@given(st.decimals(min_value=0, max_value=10_000, allow_nan=False, places=9))
def test_no_maximum_and_no_price_is_below_the_true_one(amount: Decimal) -> None:
    assert Decimal(units.most_usd(amount)[1:]) >= amount
    assert Decimal(units.price(amount)[1:]) >= amount


def test_a_limit_and_what_exceeds_it_differ_in_print() -> None:
    known, limit = Decimal("0.3041"), Decimal("0.30")
    said = launch_plan.limit_warning(known, limit)
    assert "limits.max_usd is $0.30, but one attempt of every cell may cost $0.31" in said
    total = launch_plan.totals(1, 1, known, limit)
    assert total == "1 cell, 1 job, at most $0.31 an attempt (limit $0.30)"
    unknown = launch_plan.totals(1, 2, None, limit)
    assert unknown == "1 cell, 2 jobs, at an unknown cost (limit $0.30)"


@given(st.text())
def test_one_line_is_printable_whatever_comes(text: str) -> None:
    assert all(c.isprintable() for c in one_line(text))


@pytest.mark.parametrize(
    ("raw", "safe"),
    [
        ("a\x1b[31mb\x1b[0mc", "abc"),
        ("a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\b", "alinkb"),
        ("a\x1b]0;never ended", "a"),
        ("one\ntwo", "one↵two"),
        ("tab\there", "tab    here"),
        ("\u202eevil", "\N{REPLACEMENT CHARACTER}evil"),
    ],
)
def test_escapes_and_controls_are_taken_out(raw: str, safe: str) -> None:
    assert one_line(raw) == safe


def test_a_line_of_a_log_shows_what_the_last_return_left() -> None:
    assert log_line(" 10%\r 20%\r100% done\r\n") == "100% done"


@given(st.text(), st.integers(min_value=0, max_value=40))
def test_cutting_never_exceeds_the_width(text: str, width: int) -> None:
    safe = one_line(text)
    assert cell_len(fit(safe, width)) <= width
    assert cell_len(fit_end(safe, width)) <= width
    assert cell_len(pad(safe, width)) == width


def test_a_test_name_keeps_its_end() -> None:
    assert fit_end("suites/test_moe.py::test_top2[bf16]", 16) == "…test_top2[bf16]"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0s"), (0.0004, "<1ms"), (0.0123, "12ms"), (0.0994, "99ms"), (0.0996, "0.1s"),
        (3.24, "3.2s"), (9.96, "10s"), (59.6, "1m 00s"), (72, "1m 12s"),
        (7500, "2h 05m"), (-2.5, "-2.5s"),
    ],
)  # fmt: skip
def test_durations_are_for_people(seconds: float, said: str) -> None:
    assert units.duration(seconds) == said


@pytest.mark.parametrize(
    ("size", "said"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (999_999, "1.0 MB"), (10**13, "10.0 TB")],
)
def test_sizes_are_for_people(size: int, said: str) -> None:
    assert units.size(size) == said


@pytest.mark.parametrize(
    ("amount", "said"),
    [
        (None, "unknown"),
        (Decimal(0), "$0.00"),
        (Decimal("0.0042"), "$0.0042"),
        (Decimal("1.2"), "$1.20"),
    ],
)
def test_money_is_for_people(amount: Decimal | None, said: str) -> None:
    assert units.usd(amount) == said


def test_a_problem_is_written_as_editors_like_it() -> None:
    problem = Problem(("platforms", 0, "provder"), "is no key", 4, 5)
    assert located("release.yaml", problem) == "release.yaml:4:5: platforms.0.provder: is no key"
    assert located("release.yaml", Problem((), "is empty")) == "release.yaml: is empty"


def test_the_feed_is_read_as_the_standard_says() -> None:
    lines = [": heartbeat", "", "id: 7", "event: cell", 'data: {"a": 1}', "data:more", ""]
    lines += ["data: x", "", "event: end", "data", "", "data: torn"]
    assert list(read_events(lines)) == [
        StreamedEvent("7", "cell", '{"a": 1}\nmore'),
        StreamedEvent("7", "message", "x"),
        StreamedEvent("7", "end", ""),
    ]


def overridden(*settings: str) -> object:
    """The second platform after the settings, as the schema reads it."""
    documents = FileDocuments()
    source = with_overrides(documents.read_matrix(MATRIX, "m.yaml"), settings)
    return documents.read_matrix(source, "m.yaml with --set").platforms[1]


@pytest.mark.parametrize(
    ("setting", "field", "value"),
    [
        ("aws-a10g.instance_type=g5.2xlarge", "instance_type", "g5.2xlarge"),
        (
            "aws-a10g.instance_type=g5.xlarge,g5.2xlarge",
            "instance_type",
            ("g5.xlarge", "g5.2xlarge"),
        ),
        ("aws-a10g.disk_gb=200", "disk_gb", 200),
        ("aws-a10g.optional=true", "optional", True),
        ("aws-a10g.market=spot", "market", ("spot",)),
        ("aws-a10g.locations=cheapest", "locations", "cheapest"),
        ("aws-a10g.locations=us-east-1,us-west-2", "locations", ("us-east-1", "us-west-2")),
        ("aws-a10g.locations=us-east-1", "locations", ("us-east-1",)),
        ("aws-a10g.options.subnet=a=b", "options", {"subnet": "a=b"}),
    ],
)
def test_a_setting_is_typed_by_the_schema(setting: str, field: str, value: object) -> None:
    assert getattr(overridden(setting), field) == value


def test_a_setting_reaches_into_a_part() -> None:
    platform = overridden("aws-a10g.accelerator.name=A100", "aws-a10g.accelerator.count=8")
    accelerator = platform.accelerator  # type: ignore[attr-defined]
    assert (accelerator.name, accelerator.count, accelerator.vendor) == ("A100", 8, "nvidia")


def test_nothing_else_changes() -> None:
    documents = FileDocuments()
    before = documents.read_matrix(MATRIX, "m.yaml")
    after = documents.read_matrix(with_overrides(before, []), "again")
    assert after == before


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("aws-a10g", "write it as platform.field=value"),
        ("aws-a10.disk_gb=1", "no platform 'aws-a10'; did you mean 'aws-a10g'?"),
        ("aws-a10g.disk=1", "'disk' is no key; did you mean 'disk_gb'?"),
        ("aws-a10g.id=other", "'id' cannot be changed"),
        ("aws-a10g.disk_gb=much", "'much' is no whole number"),
        ("aws-a10g.optional=yes", "write true or false"),
        ("aws-a10g.accelerator.nam=x", "'nam' is no key; did you mean 'name'?"),
        ("aws-a10g.provider.x=1", "provider has no keys of its own"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(setting: str, said: str) -> None:
    with pytest.raises(CliError) as caught:
        overridden(setting)
    assert str(caught.value).startswith(f"--set {setting}: ")
    assert said in str(caught.value)


@pytest.mark.parametrize("said", ["\x9b2J", "\x7f", "\u202egnp.exe", "\U000e0041", "\u2028", "é ✓"])
def test_json_on_a_terminal_has_no_control_and_the_same_value(said: str) -> None:
    shown = json_text(json.dumps({"said": said}, indent=2, ensure_ascii=False))
    assert json.loads(shown) == {"said": said}
    assert shown.replace("\n", "").isprintable()
