"""Several controllers on one database, each a process: every decision is taken once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from orchestrator.domain.cell import CellState
from orchestrator.store.database import open_database
from tests.databases import attempt, create

ROOT = Path(__file__).parents[2]
PROCESSES = 3

CONTROLLER = """
import json, sys
from decimal import Decimal
from orchestrator.store.database import open_database
from orchestrator.domain.budget import Budget, Period
from orchestrator.domain.cell import Cause
from orchestrator.domain.outcome import Outcome
from tests.databases import NOW, deliver, lease

url, me, cells, attempt_id, chunk = json.loads(sys.argv[1])
database = open_database(url)
stores = database.stores
done = {"admitted": 0, "reserved": 0, "place": 0, "stored": 0, "finished": 0, "claimed": 0}
print("ready", flush=True)
sys.stdin.readline()
for cell in cells:
    done["admitted"] += stores.cells.admit(cell, cell + "-1", max_parallel=4, at=NOW)
for number in range(10):
    one = lease(f"{me}-{number}", attempt_id, usd="0.30")
    two = [Budget(Period.RUN, Decimal(2))]
    told = stores.leases.reserve(one, run_id="work", exclusive=False, budgets=two)
    done["reserved"] += told.answer == "reserved"
    one = lease(f"{me}-{number}-x", attempt_id, place=f"host-{number}", usd="0")
    told = stores.leases.reserve(one, run_id="work", exclusive=True)
    done["place"] += told.answer == "reserved"
    lines = chunk.replace('"seq": 1,', f'"seq": {number + 1},').encode()
    position = stores.evidence.position(attempt_id)
    if position.seq == number:
        done["stored"] += deliver(stores, attempt_id, lines, offset=position.events_bytes)
    stores.run_events.add("work", "report", {"from": me})
done["finished"] += stores.runs.finish("work", Outcome.PASSED, at=NOW)
done["claimed"] += stores.controllers.claim("dead", grace_s=60.0)
database.close()
print(json.dumps(done))
"""


def controllers(arguments: list[list[object]]) -> dict[str, int]:
    """Run controllers that begin together; the sums of what they did."""
    running = [
        subprocess.Popen(
            [sys.executable, "-c", CONTROLLER, json.dumps(argument)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for argument in arguments
    ]
    for process in running:
        assert process.stdout.readline() == "ready\n"
    for process in running:
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [json.loads(process.communicate(timeout=120)[0]) for process in running]
    assert [process.returncode for process in running] == [0] * len(running)
    return {name: sum(answer[name] for answer in answers) for name in answers[0]}


def test_controllers_on_one_database_decide_everything_once(database_url):
    database = open_database(database_url)
    stores = database.stores
    cells = create(stores, "many", platforms=12)
    attempt_id = attempt(stores, create(stores, "work", platforms=1)[0])
    stores.controllers.note(["dead"])
    event = {"v": 1, "seq": 1, "ts": 1.0, "kind": "test", "job": "unit"}
    said = {"record": "report", "nodeid": "a", "when": "call", "outcome": "passed", "duration": 1}
    chunk = json.dumps(event | {"data": said}) + "\n"
    done = controllers(
        [[database_url, f"c{n}", cells, attempt_id, chunk] for n in range(PROCESSES)]
    )
    at_work = [c for c in stores.cells.of_run("many") if c.state is CellState.PLACING]
    assert len(at_work) == 4
    assert done["admitted"] >= 4
    assert done["reserved"] == 6
    assert done["place"] == 10
    assert (done["finished"], done["claimed"]) == (1, 1)
    (fact,) = stores.results.tests("work.p0")
    assert fact.duration_s == done["stored"] == stores.evidence.position(attempt_id).seq
    numbers = [item.number for item in stores.run_events.after("work", 0, limit=1000)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) == 1 + done["stored"] + 10 * PROCESSES + 1
    database.close()
