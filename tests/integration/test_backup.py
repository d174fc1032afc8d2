"""Backup and restore, on both databases and between them."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import tarfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import SecretStr
from sqlalchemy import text

from orchestrator.adapters.files.blobs import FileBlobs
from orchestrator.application.janitor import ORPHAN_GRACE, Janitor
from orchestrator.bootstrap.backup import backup, restore
from orchestrator.bootstrap.controller_wiring import controller_id
from orchestrator.cli.errors import RefusedError
from orchestrator.config import Settings
from orchestrator.domain.audit import AuditFilters
from orchestrator.domain.cell import CellState
from orchestrator.domain.machine import Login, MachineState
from orchestrator.domain.outcome import Outcome
from orchestrator.store.audit_recorder import Call
from orchestrator.store.backup import BackupStore, table_names
from orchestrator.store.database import Database, open_database
from orchestrator.store.tables import TableBase
from runners import registry
from tests.contract.lease_stories import rent
from tests.databases import create
from tests.integration.api_context import desk
from tests.integration.fake_world import FakeWorld
from tests.integration.test_api_audit import CHANNEL, HOOK
from tests.integration.test_api_history import ran
from tests.integration.test_janitor import rent as rent_unknown

TESTS = {"t.py::test_a": "E   AssertionError: boom", "t.py::test_b": ""}


@dataclass
class Place:
    """A home and its database."""

    settings: Settings

    @property
    def url(self) -> str:
        secret = self.settings.database_url
        return secret.get_secret_value() if secret else f"sqlite:///{self.settings.home / 'app.db'}"

    def opened(self) -> Database:
        return open_database(self.url)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.needs_postgres)])
def places(request, tmp_path):
    """A place with a database of a kind, and an empty one of the same kind."""
    made = []
    for name in ("here", "there"):
        home = tmp_path / name
        home.mkdir(mode=0o700)
        url = None
        if request.param == "postgres":
            url = SecretStr(request.getfixturevalue("postgres_url_factory")(migrated=False))
        made.append(Place(Settings(home=home, database_url=url)))
    open_database(made[0].url, migrate=True).close()
    return made


def rows_of(place: Place) -> dict[str, list[str]]:
    database = place.opened()
    try:
        return {name: sorted(lines) for name, lines in database.stores.backup.copy()}
    finally:
        database.close()


def fill(place: Place) -> dict[str, str]:
    """A finished run, one with a machine, a channel, tokens; secrets by name."""
    controller_id(place.settings.home)
    with desk(place.settings.home, place.url) as api:
        ran(api, "one", TESTS)
        stores = api.context.stores
        rent(stores, create(stores, "run-1", platforms=1)[0], "machine-1")
        stores.leases.keep_login(
            "machine-1", Login("pub", "PRIVATE KEY", "host", "HOST PRIVATE KEY")
        )
        stores.leases.active("machine-1", "m-1", at=api.clock.now())
        secrets = {"slack": "canary-of-slack"}
        for body in (CHANNEL, HOOK):
            answer = api.client.post("/api/v1/channels", json=body).json()
            secrets[str(body["name"])] = answer["secret"] or "canary-of-slack"
        token = api.client.post("/api/v1/tokens", json={"name": "ci", "scope": "run"}).json()
        secrets["token"] = token["secret"]
    if place.settings.database_url is not None:  # the desk has its blobs in files
        files = FileBlobs(place.settings.home / "blobs")
        with closing(place.opened()) as database:
            for blob in files.stored(idle_s=None):
                database.blobs.put(files.open(blob.digest), digest=blob.digest)
    return secrets


def test_what_is_restored_is_what_was_backed_up(places, tmp_path) -> None:
    here, there = places
    fill(here)
    report = backup(here.settings, tmp_path / "one.tar.gz")
    before = rows_of(here)
    assert (tmp_path / "one.tar.gz").stat().st_mode & 0o777 == 0o600
    restored = restore(there.settings, tmp_path / "one.tar.gz")
    assert (restored.blobs, restored.at) == (report.blobs, report.at)
    after = rows_of(there)
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"audit_entry", "channel", "run"}, "as the page says"
    assert len(after["audit_entry"]) == len(before["audit_entry"]) + 1
    ids = [(place.settings.home / "controller.id").read_bytes() for place in places]
    assert ids[0] == ids[1]
    database = there.opened()
    try:
        stores = database.stores
        assert stores.audit.verify().broken_at is None
        newest, *_ = stores.audit.page(AuditFilters(), limit=1)
        assert (newest.operation, newest.resource) == ("restore", "database")
        assert all(health.disabled_at for _, health in stores.outbox.channels())
    finally:
        database.close()


def test_a_restored_database_counts_on(places, tmp_path) -> None:
    here, there = places
    fill(here)
    backup(here.settings, tmp_path / "one.tar.gz")
    restore(there.settings, tmp_path / "one.tar.gz")
    with desk(there.settings.home, there.url) as api:
        ran(api, "two", TESTS)
        assert len(api.client.get("/api/v1/runs").json()["items"]) == 3


def test_a_run_that_was_going_on_is_cancelled_and_its_lease_stays_open(places, tmp_path) -> None:
    here, there = places
    fill(here)
    backup(here.settings, tmp_path / "one.tar.gz")
    restore(there.settings, tmp_path / "one.tar.gz")
    database = there.opened()
    try:
        unfinished = [database.stores.runs.get(one) for one in database.stores.runs.unfinished()]
        assert len(unfinished) == 2
        assert all(run and run.cancel_requested_at for run in unfinished)
        [lease] = database.stores.leases.open()
        assert lease.machine_id
        assert database.stores.leases.login(lease.id) is None, "its keys are secret"
    finally:
        database.close()


def test_no_secret_is_in_it(places, tmp_path) -> None:
    here, _ = places
    secrets = fill(here)
    backup(here.settings, tmp_path / "one.tar.gz")
    whole = gzip.decompress((tmp_path / "one.tar.gz").read_bytes()).decode("utf-8", "replace")
    assert '"ci"' in whole
    for name, secret in secrets.items():
        assert secret not in whole, name
    assert "PRIVATE KEY" not in whole


def test_every_table_is_copied_or_said_to_be_left_out() -> None:
    assert set(TableBase.metadata.tables) - set(table_names()) == {
        "blob",
        "blob_chunk",
        "browser_session",
        "change_mark",
        "controller",
        "lease_credentials",
    }


def test_a_backup_can_be_restored_into_the_other_database(tmp_path, postgres_url_factory) -> None:
    homes = [tmp_path / "here", tmp_path / "there"]
    here = Place(Settings(home=homes[0]))
    url = SecretStr(postgres_url_factory(migrated=False))
    there = Place(Settings(home=homes[1], database_url=url))
    homes[0].mkdir(mode=0o700)
    open_database(here.url, migrate=True).close()
    fill(here)
    report = backup(here.settings, tmp_path / "one.tar.gz")
    assert report.blobs > 0
    restore(there.settings, tmp_path / "one.tar.gz")
    before, after = rows_of(here), rows_of(there)
    assert {name: len(rows) for name, rows in after.items() if name != "audit_entry"} == {
        name: len(rows) for name, rows in before.items() if name != "audit_entry"
    }
    database = there.opened()
    try:
        assert sum(1 for _ in database.blobs.stored(idle_s=None)) == report.blobs
    finally:
        database.close()


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A folder with a home, and a backup of it."""
    folder = tmp_path_factory.mktemp("filled")
    here = Place(Settings(home=folder / "here"))
    here.settings.home.mkdir(mode=0o700)
    open_database(here.url, migrate=True).close()
    fill(here)
    backup(here.settings, folder / "one.tar.gz")
    return folder


@pytest.fixture
def made(filled, tmp_path):
    """The same, for a test to change."""
    shutil.copytree(filled, tmp_path, dirs_exist_ok=True)
    return Place(Settings(home=tmp_path / "here")), tmp_path / "one.tar.gz"


def empty(tmp_path: Path, **settings: object) -> Settings:
    return Settings(home=tmp_path / "there", **settings)


def test_a_home_that_is_not_empty_is_refused_and_left_alone(made, tmp_path) -> None:
    here, archive = made
    before = rows_of(here)
    with pytest.raises(RefusedError, match="is not empty"):
        restore(here.settings, archive)
    assert rows_of(here) == before


def test_a_file_that_exists_is_not_written_over(made) -> None:
    here, archive = made
    content = archive.read_bytes()
    with pytest.raises(RefusedError, match="exists already"):
        backup(here.settings, archive)
    assert archive.read_bytes() == content
    assert list(archive.parent.glob("*.part")) == []


@pytest.mark.parametrize("damage", ["cut off", "a bit", "a row", "a member left out", "no archive"])
def test_a_damaged_archive_is_refused_before_anything_is_written(made, tmp_path, damage) -> None:
    _, archive = made
    content = archive.read_bytes()
    if damage == "cut off":
        archive.write_bytes(content[: len(content) // 2])
    elif damage == "a bit":
        middle = len(content) // 2
        archive.write_bytes(content[:middle] + bytes([content[middle] ^ 4]) + content[middle + 1 :])
    elif damage == "no archive":
        archive.write_bytes(b"hello")
    else:
        rewritten(archive, "rows/token", None if damage == "a member left out" else b"[1]\n")
    target = empty(tmp_path)
    with pytest.raises(RefusedError, match="is no whole backup"):
        restore(target, archive)
    assert not (target.home / "app.db").exists()


def rewritten(archive: Path, name: str, content: bytes | None, facts: object = None) -> None:
    """Write the archive again with a member changed, or left out."""
    members = members_of(archive)
    if content is None:
        members.pop(name, None)
    else:
        members[name] = content
    if facts:
        listed = json.loads(members["backup.json"]) | facts
        members["backup.json"] = json.dumps(listed).encode()
    packed(archive, list(members.items()))


def members_of(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as old:
        return {member.name: old.extractfile(member).read() for member in old}


def packed(archive: Path, members: list[tuple[str, bytes]]) -> None:
    """Write an archive of any members."""
    with tarfile.open(archive, mode="w:gz", compresslevel=1) as new:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            new.addfile(member, io.BytesIO(content))


def forged(archive: Path, **changed: bytes | None) -> None:
    """Write the archive again with other rows by table, or None for a table less; all listed."""
    members = members_of(archive)
    listed = json.loads(members.pop("backup.json"))
    for table, rows in changed.items():
        members.pop(f"rows/{table}", None)
        if rows is not None:
            members[f"rows/{table}"] = rows
    listed["members"] = {
        name: hashlib.sha256(content).hexdigest() for name, content in members.items()
    }
    packed(archive, [*members.items(), ("backup.json", json.dumps(listed).encode())])


def refused(tmp_path: Path, archive: Path, said: str) -> None:
    """Nothing of the archive is stored; why is said, and a whole one can be restored next."""
    target = empty(tmp_path)
    with pytest.raises(RefusedError, match=said):
        restore(target, archive)
    if (target.home / "app.db").exists():
        database = open_database(Place(target).url)
        try:
            assert database.stores.backup.is_empty()
        finally:
            database.close()


@pytest.mark.parametrize(
    ("fact", "value"),
    [
        ("controller", None),
        ("controller", "../../x\n$(id)"),
        ("controller", "\u00fcbung"),
        ("controller", "01m2n3p4q5r6s7t8v9w0x1y2z3\n"),
        ("controller", 7),
        ("at", None),
        ("at", "yesterday"),
        ("at", "2026-03-01T12:00:00"),
        ("project", None),
        ("version", ["1"]),
        ("members", {"rows/token": 1}),
        ("members", []),
        ("format", "1"),
    ],
)
def test_an_archive_without_a_fact_or_with_an_odd_one_is_refused(
    made, tmp_path, fact, value
) -> None:
    _, archive = made
    members = members_of(archive)
    listed = json.loads(members["backup.json"])
    if value is None:
        del listed[fact]
    else:
        listed[fact] = value
    members["backup.json"] = json.dumps(listed).encode()
    packed(archive, list(members.items()))
    refused(tmp_path, archive, f"is no whole backup: backup.json cannot be read: {fact}")
    assert not (tmp_path / "there").exists()


def test_a_restore_that_ends_before_its_rows_has_the_controllers_id_and_can_be_repeated(
    places, tmp_path, monkeypatch
) -> None:
    """Machines are known by the id: rows are never there without it."""
    here, there = places
    fill(here)
    archive, target = tmp_path / "one.tar.gz", there.settings
    assert backup(here.settings, archive).blobs > 0

    def dies(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(BackupStore, "restore", dies)
    with pytest.raises(KeyboardInterrupt):
        restore(target, archive)
    name = "controller.id"
    assert (target.home / name).read_bytes() == (here.settings.home / name).read_bytes()
    monkeypatch.undo()
    restore(target, archive)
    assert len(rows_of(there)["run"]) == len(rows_of(here)["run"])


@pytest.mark.parametrize("is_more", [False, True])
def test_an_archive_without_one_table_is_refused(made, tmp_path, is_more) -> None:
    _, archive = made
    forged(archive, token=None, **({"tokens": b""} if is_more else {}))
    refused(tmp_path, archive, "'rows/token' is missing")


@pytest.mark.parametrize("name", ["rows/nothing", "blobs/../../x", "hello", f"blobs/{'0' * 64}"])
def test_a_member_that_is_no_table_and_no_blob_is_refused(made, tmp_path, name) -> None:
    _, archive = made
    members = members_of(archive)
    listed = json.loads(members.pop("backup.json"))
    members[name] = b"content"
    listed["members"][name] = hashlib.sha256(b"content").hexdigest()
    packed(archive, [*members.items(), ("backup.json", json.dumps(listed).encode())])
    refused(tmp_path, archive, f"'{name}' is neither a table of this version nor a blob")


@pytest.mark.parametrize("name", ["rows/token", "backup.json"])
def test_a_member_that_is_there_twice_is_refused(made, tmp_path, name) -> None:
    _, archive = made
    members = members_of(archive)
    packed(archive, [(name, members[name] * 2), *members.items()])
    refused(tmp_path, archive, f"'{name}' is there twice")


def test_a_link_or_a_name_without_end_is_refused(made, tmp_path) -> None:
    _, archive = made
    for kind, name in ((tarfile.SYMTYPE, "rows/token"), (tarfile.REGTYPE, "rows/" + "x" * 300)):
        with tarfile.open(archive, mode="w:gz") as new:
            member = tarfile.TarInfo(name)
            member.type = kind
            new.addfile(member)
        refused(tmp_path, archive, "is no file")


def test_a_last_row_without_an_end_is_refused(made, tmp_path) -> None:
    _, archive = made
    forged(archive, token=members_of(archive)["rows/token"].rstrip(b"\n"))
    refused(tmp_path, archive, "a row of the table token has no end")


def test_lists_and_rows_are_limited(made, tmp_path, monkeypatch) -> None:
    _, archive = made
    with monkeypatch.context() as patch:
        patch.setattr("orchestrator.adapters.files.backup_archive._LIST_LIMIT", 100)
        refused(tmp_path, archive, "has more than 100 bytes")
    monkeypatch.setattr("orchestrator.bootstrap.backup._ROW_LIMIT", 20)
    refused(tmp_path, archive, "more than 20 bytes")


@pytest.mark.parametrize("listed", [b"[" * 100_000, b"\xff", b"{", b"[]", b"7", b'"\\ud800"'])
def test_a_list_that_is_no_list_is_refused(made, tmp_path, listed) -> None:
    _, archive = made
    rewritten(archive, "backup.json", listed)
    refused(tmp_path, archive, "backup.json cannot be read")


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"revision": "9999", "version": "9.0"}, "restore it with that version"),
        ({"project": "another"}, "SEATRIAL_PROJECT"),
        ({"format": 2}, "a newer version may read it"),
    ],
)
def test_a_backup_that_does_not_fit_is_refused(made, tmp_path, facts, said) -> None:
    _, archive = made
    rewritten(archive, "", None, facts)
    target = empty(tmp_path)
    with pytest.raises(RefusedError, match=said):
        restore(target, archive)
    assert not (target.home / "app.db").exists(), "the next start would take it for a new home"


def test_a_restore_that_fails_stores_no_row_and_can_be_repeated(places, tmp_path) -> None:
    here, there = places
    fill(here)
    archive, target = tmp_path / "one.tar.gz", there.settings
    assert backup(here.settings, archive).blobs > 0
    good = archive.read_bytes()
    with tarfile.open(archive) as opened:
        runs = opened.extractfile("rows/run").read()
        listed = json.load(opened.extractfile("backup.json"))
    twice = runs + runs
    listed["members"]["rows/run"] = hashlib.sha256(twice).hexdigest()
    rewritten(archive, "rows/run", twice, {"members": listed["members"]})
    with pytest.raises(RefusedError, match=r"(?i)unique"):
        restore(target, archive)
    archive.write_bytes(good)
    restore(target, archive)
    assert len(rows_of(there)["run"]) == len(rows_of(here)["run"])


def test_a_backup_is_of_one_moment_while_others_write(places, tmp_path) -> None:
    here, _ = places
    fill(here)
    with desk(here.settings.home, here.url) as api:
        copied = {}
        for number, (name, lines) in enumerate(api.context.stores.backup.copy()):
            if number == 1:
                ran(api, "late", TESTS)
            copied[name] = list(lines)
        assert [json.loads(line)[0] for line in copied["idempotency_key"]] == ["one"]
        with api.database.sessions.read() as session:
            assert session.scalar(text("SELECT count(*) FROM run")) == len(copied["run"]) + 1


class _DeadError(Exception):
    """The first controller ended."""


def died_in_the_middle(here: FakeWorld) -> tuple[str, dict[str, list[str]]]:
    """The cell of a run whose controller ended while tests ran, and a copy of that moment."""
    copies: dict[str, list[str]] = {}

    def copy_and_die(world: FakeWorld) -> None:
        [cell] = world.database.stores.cells.of_run("run")
        if cell.state is CellState.RUNNING:
            found = world.database.stores.backup.copy()
            copies.update((name, list(lines)) for name, lines in found)
            raise _DeadError

    here.on_tick.append(copy_and_die)
    [cell_id] = here.launch()
    with pytest.raises(_DeadError):
        here.engine.run(cell_id)
    here.close()
    return cell_id, copies


@pytest.mark.parametrize("is_gone", [False, True])
def test_no_machine_is_forgotten(tmp_path, is_gone) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    here = FakeWorld(tmp_path / "here")
    cell_id, copies = died_in_the_middle(here)
    [machine] = here.cloud.live()
    late = rent_unknown(here, "late")
    if is_gone:
        here.cloud.terminate(machine.id)
    there = FakeWorld(tmp_path / "there", clock=here.clock, cloud=here.cloud)
    call = Call(operation=lambda: "restore", at=here.clock.now(), project="test")
    there.database.stores.backup.restore(((k, iter(v)) for k, v in copies.items()), call)
    there.engine.run(cell_id)
    assert there.record().run.outcome is Outcome.CANCELLED
    assert there.database.stores.leases.open() == []
    assert [one.id for one in there.cloud.live()] == [late]
    janitor = Janitor(
        stores=there.database.stores,
        provider=there.world.provider,
        traits={"fake": registry.traits("fake")},
        project="test",
        controller="controller",
        now=there.clock.now,
        settings={},
    )
    assert janitor.sweep() == []
    there.clock.step(ORPHAN_GRACE.total_seconds())
    assert [one.machine.id for one in janitor.sweep()] == [late]
    assert [one.state for one in there.cloud.live()] == [MachineState.STOPPING]
    there.close()
