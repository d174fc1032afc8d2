"""The proof of the lease protocol: whatever goes wrong, and whoever dies, nothing is left running.

Hypothesis draws plots (a clumsy cloud, crashes, a cancelling person); each is lived through from
the launch to the janitor's last sweep. `SEATRIAL_LEAK_SEEDS` says how many are drawn in all.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections import Counter
from dataclasses import dataclass, field, replace
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from orchestrator.store.database import open_database
from orchestrator.store.stores import stores_of
from tests.integration.faulty_script import Answer, Fate, Flavour, Nature, Outage, Script, Verb
from tests.integration.leak_history import History
from tests.integration.leak_plants import BUGS
from tests.integration.leak_plot import SOUND, WRITES, Crash, LeakError, Plant, Plot

SEEDS = int(os.environ.get("SEATRIAL_LEAK_SEEDS", "1000"))
CHUNKS = (0, pytest.param(1, marks=pytest.mark.slow))
"""One is enough for every day."""
CHUNK = SEEDS // len(CHUNKS)
REAL = CHUNK // 25
"""So many of each are lived through over SQLite as well, which is forty times slower."""
POINTS = (
    {f"{verb}, before" for verb in Verb}
    | {"launch, refused", "launch, on its way", "launch, made", "inspect, answered"}
    | {"terminate, on its way", "terminate, accepted", "inventory, answered"}
    | {f"{w}, {when}" for ws in WRITES.values() for w in ws for when in ("before", "stored")}
)
"""Where a controller may die."""
RARE = {
    f"{write}, {when}"
    for write in ("reopen", "requeue", "record_cause")
    for when in ("before", "stored")
}
EVERYTHING = (
    {f"launch: {answer}" for answer in Answer}
    | {f"fate: {fate}" for fate in Fate}
    | {f"out: {verb}" for verb in Verb if verb is not Verb.LAUNCH}
    | {"terminate: deaf", "terminate: not found", "inventory: gone, and listed"}
    | {"janitor of the controller ends a disk", "janitor of the neighbour ends a machine"}
)
"""What every chunk has to come across."""
TIMES = st.sampled_from((0, 1, 5, 20, 60))
NATURES = st.builds(
    Nature,
    flavour=st.sampled_from(Flavour),
    grants_in_s=st.sampled_from((0, 3, 30, 250, 320)),
    boots_in_s=TIMES,
    ends_in_s=TIMES,
    shows_after_s=TIMES,
    lists_after_s=TIMES,
    shows_gone_s=TIMES,
    lists_gone_s=st.sampled_from((0, 60, 600)),
    deaf=st.integers(0, 3),
    has_timer=st.booleans().map(lambda said: not said),
    leaves_disks=st.booleans(),
    lists_requests=st.booleans(),
)
OFTEN = (Answer.OK, Answer.THROTTLED, Answer.LOST, Answer.LOST, Answer.CAPACITY)
ANSWERS = st.lists(st.sampled_from((*Answer, *OFTEN, *OFTEN)), max_size=8).map(tuple)
FATES = st.lists(
    st.tuples(st.sampled_from(Fate), st.sampled_from((0, 10, 40, 120, 400))), max_size=4
).map(tuple)
OUTAGES = st.lists(
    st.builds(
        Outage,
        verb=st.sampled_from([verb for verb in Verb if verb is not Verb.LAUNCH]),
        begins_s=st.sampled_from((0, 1, 30, 120, 600, 1500)),
        lasts_s=st.sampled_from((30, 150, 900, 2400)),
    ),
    max_size=3,
).map(tuple)
SCRIPTS = st.builds(
    Script,
    nature=NATURES,
    answers=ANSWERS,
    fates=FATES,
    delays_s=st.lists(st.sampled_from((0, 1, 10, 45)), max_size=12).map(tuple),
    outages=OUTAGES,
)
CRASHES = st.lists(
    st.builds(
        Crash,
        after_points=st.sampled_from(range(120)),
        down_s=st.sampled_from((0, 5, 90, 900, 9000)),
    ),
    max_size=3,
).map(tuple)
PLOTS = st.builds(
    Plot,
    cloud=SCRIPTS,
    crashes=CRASHES,
    is_forsaken=st.booleans(),
    has_neighbour=st.booleans(),
    cancel_at_s=st.sampled_from((None, None, None, None, None, 0, 1, 15, 60, 130, 400)),
    retries=st.integers(0, 2),
    max_usd=st.sampled_from(("5", "0.80", "0.40", "0.20")).map(Decimal),
    pace_s=st.sampled_from((10, 2, 30)),
    works_for=st.sampled_from((2, 0, 20, 10**6)),
)


REAL_PLOTS = st.builds(
    replace,
    PLOTS,
    pace_s=st.just(30),
    works_for=st.sampled_from((2, 0)),
    has_neighbour=st.just(False),
)
"""Short ones."""
LATE = st.builds(
    replace,
    NATURES,
    shows_after_s=st.sampled_from((300, 100, 900)),
    lists_after_s=st.sampled_from((300, 100, 900)),
)
LATE_PLOTS = st.builds(
    replace,
    PLOTS,
    cloud=st.builds(replace, SCRIPTS, nature=LATE),
    crashes=st.just(()),
    is_forsaken=st.just(False),
    has_neighbour=st.just(False),
    max_usd=st.just(Decimal(50)),
)
"""Clouds that show a new machine later than anybody may: then the janitor has to do it."""


@pytest.fixture(autouse=True)
def _quiet():
    """A thousand histories tell too much."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@dataclass(slots=True)
class Proof:
    """What was lived through."""

    histories: int = 0
    marks: Counter[str] = field(default_factory=Counter)
    points: Counter[str] = field(default_factory=Counter)
    shapes: set[tuple[tuple[str, ...], ...]] = field(default_factory=set)

    def add(self, history: History) -> None:
        self.histories += 1
        self.marks.update(set(history.cloud.marks))
        self.points.update(set(history.points))
        self.shapes.add(history.shape())

    def tell(self) -> str:
        counts = "".join(
            f"\n  {name}: {count}" for name, count in sorted((self.marks + self.points).items())
        )
        return f"{self.histories} histories of {len(self.shapes)} shapes; in how many:{counts}"


def prove(
    chunk: int,
    examples: int,
    *,
    plots: st.SearchStrategy[Plot] = PLOTS,
    plant: Plant = SOUND,
    is_punctual: bool = True,
) -> Proof:
    """Live through so many plots; raises LeakError with the simplest plot that it takes."""
    proof = Proof()

    @seed(chunk)
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        print_blob=False,
        report_multiple_bugs=False,
        phases=[Phase.generate, Phase.shrink] if plant is SOUND else [Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(plots)
    def live(plot: Plot) -> None:
        history = History(plot, plant=plant, is_punctual=is_punctual)
        history.live()
        proof.add(history)

    live()
    return proof


@pytest.mark.parametrize("chunk", CHUNKS)
def test_nothing_leaks(chunk):
    proof = prove(chunk, CHUNK)
    print(proof.tell())
    assert proof.histories >= CHUNK
    assert sorted(EVERYTHING - set(proof.marks)) == []
    assert len(proof.points) >= len(POINTS) // 2
    assert sorted(set(proof.points) - POINTS) == []


def test_what_shows_later_than_promised_is_ended_by_the_janitor_and_paid():
    proof = prove(100, CHUNK // 4, plots=LATE_PLOTS, is_punctual=False)
    assert proof.marks["janitor of the controller ends a machine"] > 0


@pytest.mark.parametrize("is_forsaken", [False, True])
@pytest.mark.parametrize("flavour", Flavour)
def test_a_crash_at_every_point(flavour, is_forsaken):
    """Before and after every call and every write, in a run that has a lost answer besides."""
    nature = Nature(flavour=flavour, grants_in_s=30, boots_in_s=20, ends_in_s=20, deaf=1)
    nature = replace(nature, shows_after_s=20, lists_after_s=60, leaves_disks=True)
    script = Script(nature, answers=(Answer.CAPACITY, Answer.LOST), delays_s=(5,) * 8)
    plot = Plot(script, is_forsaken=is_forsaken, retries=1)
    points = History(plot).live().passed
    assert points > 100
    died: Counter[str] = Counter()
    for point in range(points):
        history = History(replace(plot, crashes=(Crash(point, down_s=5),))).live()
        assert len(history.cloud.machines) <= 1
        died += history.points
    assert sum(died.values()) == points
    assert sorted(POINTS - set(died) - RARE) == []


@pytest.mark.parametrize("chunk", CHUNKS)
def test_a_real_database_leads_to_the_same_histories(chunk, sqlite_template, tmp_path):
    """What is proved over the stores in memory holds for those that are used."""
    path = tmp_path / "app.db"
    shutil.copy(sqlite_template, path)
    database = open_database(f"sqlite:///{path}")

    @seed(200 + chunk)
    @settings(
        max_examples=REAL,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(REAL_PLOTS)
    def compare(plot: Plot) -> None:
        database.close()  # its statements stay compiled; the next connection finds an empty file
        for left in tmp_path.glob("app.db*"):
            left.unlink()
        shutil.copy(sqlite_template, path)
        real = History(plot, stores=stores_of(database.sessions)).live()
        quick = History(plot).live()
        assert real.cloud.calls == quick.cloud.calls
        assert real.ledger() == quick.ledger()

    compare()
    database.close()


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_caught(bug):
    with pytest.raises(LeakError, match=BUGS[bug].said):
        prove(300, 1500, plots=PLOTS.map(BUGS[bug].shows_in), plant=BUGS[bug].plant)
