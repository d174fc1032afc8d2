"""The list of gates, with keys and channels."""

from __future__ import annotations

from datetime import timedelta

from orchestrator.application.channels import NewChannel, add_channel
from orchestrator.application.signing_keys import rotate_key
from orchestrator.domain.channel import Announcement, ChannelKind, LineageState
from orchestrator.domain.schedule import Schedule
from tests.integration import gate_world
from tests.integration.dashboard.desk import PageDesk

FAILED = {"tests/test_a.py::one": "passed", "tests/test_a.py::two": "failed"}


def test_without_gates_the_command_that_makes_one_is_told(pages: PageDesk) -> None:
    page = pages.page("/gates")
    assert "seatrial gate check gates/local.yaml" in page.one(id="gates").text
    assert "seatrial channel add" in page.one(id="channels").text


def test_a_gate_without_a_verdict_is_loud(pages: PageDesk) -> None:
    gate_world.put(pages.api)
    [row] = pages.page("/gates").rows("gates")
    assert row["Decision"] == "? unknown no verdict yet"
    assert row["Open items"] == "its first verdict seatrial gate check release"


def test_a_gate_tells_its_decision_since_when_and_what_it_waits_for(pages: PageDesk) -> None:
    gate_world.put(pages.api)
    gate_world.ran(pages.api)
    first = gate_world.check(pages.api, "one")
    pages.api.clock.move(hours=3)
    gate_world.check(pages.api, "two")
    pages.api.clock.move(hours=5)
    [row] = pages.page("/gates").rows("gates")
    assert row["Decision"] == "✓ PASS"
    assert row["Since"] == "2026-03-01 12:00 UTC"
    assert row["Decided"] == "5 h ago"
    assert row["Newest verdict"].startswith("V-0002 All ")
    assert row["Open items"] == "nothing"
    assert first["id"] == "V-0001"


def test_a_pass_that_is_too_old_is_stale(pages: PageDesk) -> None:
    gate_world.put(pages.api)
    gate_world.ran(pages.api)
    gate_world.check(pages.api)
    pages.api.clock.move(hours=37)
    [row] = pages.as_viewer("read").page("/gates").rows("gates")
    assert "✓ PASS" in row["Decision"]
    assert "stale" in row["Decision"]
    assert row["Open items"] == "evidence that is not older than 36h"


def test_newer_runs_and_another_policy_are_waited_for(pages: PageDesk) -> None:
    gate_world.put(pages.api)
    gate_world.ran(pages.api)
    gate_world.check(pages.api)
    newer = gate_world.ran(pages.api, "key-2")
    going, _ = gate_world.begun(pages.api, "key-3")
    gate_world.put(pages.api, gate_world.POLICY + "  cost: {max_usd: 3}\n")
    [row] = pages.page("/gates").rows("gates")
    assert f"a verdict on run {newer[:12]}" in row["Open items"]
    assert f"run {going[:12]}, which goes on" in row["Open items"]
    assert "by its present policy" in row["Open items"]


def test_each_line_has_a_row_and_its_own_schedule(pages: PageDesk) -> None:
    gate_world.put(pages.api)
    gate_world.ran(pages.api)
    gate_world.check(pages.api, "a")
    pages.api.clock.move(minutes=1)
    gate_world.check(pages.api, "b", lineage="release@nightly")
    pages.stores.schedules.add(
        _schedule(pages), next_due_at=pages.api.clock.now() + timedelta(hours=1)
    )
    rows = pages.rows("/gates", "gates")
    assert [row["line"] for row in rows] == ["release@nightly", ""]
    assert [row["verdict"] for row in rows] == ["V-0002", "V-0001"]
    assert rows[0]["next_schedule"][0] == "2026-03-02T02:00:00+00:00"


def test_what_a_page_asks_of_the_database_does_not_grow(pages: PageDesk) -> None:
    for number in range(2):
        text = gate_world.POLICY.replace("name: release", f"name: gate{number}")
        url = f"{gate_world.API}/gates/gate{number}"
        assert pages.api.client.put(url, json={"policy": text}).status_code == 200
    pages.page("/gates")
    with pages.counted() as few:
        pages.page("/gates")
    for number in range(2, 6):
        text = gate_world.POLICY.replace("name: release", f"name: gate{number}")
        pages.api.client.put(f"{gate_world.API}/gates/gate{number}", json={"policy": text})
    with pages.counted() as many:
        pages.page("/gates")
    assert len(many) == len(few) <= 12


def test_keys_are_active_soon_over_expired_and_retired(pages: PageDesk) -> None:
    gate_world.put(pages.api)
    gate_world.ran(pages.api)
    gate_world.check(pages.api)
    assert pages.page("/gates").rows("signing")[0]["State"] == "● active"
    pages.api.clock.move(days=340)
    pages = pages.as_viewer("admin")
    assert pages.page("/gates").rows("signing")[0]["State"] == "● active ends in 25 d"
    rotate_key(pages.api.context)
    states = [row["State"] for row in pages.page("/gates").rows("signing")]
    assert states == ["● active", "– retired"]
    pages.api.clock.move(days=400)
    pages = pages.as_viewer("admin")
    assert pages.page("/gates").rows("signing")[0]["State"].endswith("expired")


def test_channels_hide_what_is_secret_and_can_be_tested(pages: PageDesk) -> None:
    new = NewChannel(
        name="=HYPERLINK(1)", kind=ChannelKind.WEBHOOK, target="https://127.0.0.1:9/t/s3cret"
    )
    channel, secret = add_channel(pages.api.context, new)
    answer = pages.get("/gates").text
    assert "s3cret" not in answer
    assert str(secret) not in answer
    sent = pages.post(f"/channels/{channel.id}/test")
    assert sent.headers["location"] == f"/gates?tested={channel.id}#channels-title"
    said = pages.page(f"/gates?tested={channel.id}").one(role="status", class_="notice").text
    assert said.startswith("The test did not reach =HYPERLINK(1):")
    for number in range(11):  # what is sent to it afterwards hides no test
        state = (LineageState.PASS, LineageState.FAIL)[number % 2]
        news = Announcement(
            lineage="release", state=state, title="news", text="", url="",
            at=pages.api.clock.now(), key=str(number), facts={},
        )  # fmt: skip
        context = pages.api.context
        assert context.stores.outbox.put(news, new_id=context.new_id, at=news.at)
    assert (
        pages.page(f"/gates?tested={channel.id}").one(role="status", class_="notice").text == said
    )
    assert pages.csv("/gates?table=channels")[1][0] == "'=HYPERLINK(1)"
    reader = pages.as_viewer("gate")
    assert not reader.page("/gates").all("form", action=f"/channels/{channel.id}/test")
    reader.post(f"/channels/{channel.id}/test", status=403)
    pages.post("/channels/nobody/test", status=404)


def _schedule(pages: PageDesk) -> Schedule:
    return Schedule(
        name="nightly",
        cron="0 2 * * *",
        tz="UTC",
        owner="ann",
        matrix=gate_world.MATRIX,
        gate="release",
        created_at=pages.api.clock.now(),
    )
