"""A controller under load: CPU time of reads, a mixed minute while a run goes on, event streams.

The controller serves a home with twelve nights of results (SQLite, or with `--postgres` on a server
of its own). The requests come at their times, whether or not the earlier ones were answered, so a
slow answer delays no other one. This process and the jobs of the run use the same cores.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
from pydantic import SecretStr

from benchmarks.dashboard.fill import fill
from benchmarks.dashboard.sizes import SIZES
from orchestrator.bootstrap.controller_wiring import build
from orchestrator.config import Settings
from tests.e2e.home import Home, a_home, eventually, serving
from tests.e2e.payloads import matrix
from tests.e2e.test_ssh_hosts import platform
from tests.postgres import start_postgres
from tests.ssh_hosts import SshHost

TIMES = 100
"""Number of requests of each route for the mean of its CPU time."""
RATE = 100
"""Requests per second."""
SECONDS = 60
CONDITIONAL = 0.6
"""Share of the requests that send the last ETag of their address."""
CLIENTS = 25
"""Number of connection pools; one pool of hundreds costs this process more than the controller."""
STREAMS = 500
LIMITS = {"http_requests_a_minute": "100000", "http_connections": "1024"}
"""Raised limits of the controller, because all requests have one token."""
SUITE = """import time, pytest

@pytest.mark.parametrize("n", range({tests}))
def test_step(n):
    time.sleep(0.5)
"""
MANIFEST = """schema = 1
name = "load"
version = "1"
[setup]
pip = ["pytest==8.4.2"]
[[job]]
id = "suite"
kind = "suite"
pytest = ["test_suite.py"]
"""


@contextmanager
def controller(folder: Path, *, postgres: bool) -> Iterator[Home]:
    """Serve a filled home."""
    with ExitStack() as stack:
        url = f"sqlite:///{folder / 'home' / 'app.db'}"
        if postgres:
            server = start_postgres(fast=False)
            stack.callback(server.stop)
            url = server.create("app")
        (folder / "home").mkdir(mode=0o700)
        parts = build(Settings(home=folder / "home", database_url=SecretStr(url)), runs_cells=False)
        fill(parts, SIZES["small"], now=datetime.now(UTC))
        parts.database.close()
        variables = {f"SEATRIAL_{name.upper()}": value for name, value in LIMITS.items()}
        home = stack.enter_context(a_home(folder / "home", SEATRIAL_DATABASE_URL=url, **variables))
        stack.enter_context(serving(home))
        yield home


def begin_run(home: Home, host: SshHost, folder: Path, seconds: int) -> str:
    """Start a run that reports two tests a second."""
    payload = folder / "payload"
    payload.mkdir()
    (payload / "payload.toml").write_text(MANIFEST)
    (payload / "test_suite.py").write_text(SUITE.format(tests=seconds * 2))
    return home.launch(matrix(folder / "matrix.yaml", payload, platform(host)))


def addresses(client: httpx.Client) -> dict[str, tuple[str, ...]]:
    """Return realistic addresses by kind: REST's reads and pages."""
    runs = [run["id"] for run in client.get("/api/v1/runs").json()["items"]][:8]
    cells = [
        f"{run}/cells/{cell['platform']['id']}"
        for run in runs[:4]
        for cell in client.get(f"/api/v1/runs/{run}").json()["cells"]
        if not cell["environment"]
    ]
    return {
        "REST": (
            "/api/v1/runs", "/api/v1/gates", "/api/v1/schedules", "/api/v1/machines",
            *(f"/api/v1/runs/{one}" for one in runs),
            *(f"/api/v1/runs/{one}/tests" for one in cells),
        ),
        "pages": ("/", "/runs", "/gates", "/costs", *(f"/runs/{one}" for one in (*runs, *cells))),
        "metrics": ("/metrics",),
    }  # fmt: skip


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process's living threads."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def reads(client: httpx.Client, pid: int, path: str, *, conditional: bool = False) -> str:
    """Return the controller's CPU milliseconds for a read, or for a 304; a dash without one."""
    tag, costs = client.get(path).headers.get("ETag", ""), []
    for _ in range(TIMES):
        began = cpu_s(pid)
        answer = client.get(path, headers={"If-None-Match": tag} if conditional else {})
        if (answer.status_code == 304) == conditional:
            costs.append(cpu_s(pid) - began)
        tag = answer.headers.get("ETag", "")
    return f"{1e3 * statistics.median(costs):.1f}" if costs else "-"


def idle_reads(client: httpx.Client, pid: int, kinds: dict[str, tuple[str, ...]]) -> None:
    """Print the controller's CPU time of each kind of read, with and without an ETag."""
    print(f"{'read':38} {'CPU ms':>7} {'304, ms':>8}")
    for kind, paths in kinds.items():
        for path in dict.fromkeys(paths[:5] + paths[-1:]):
            plain, tagged = (reads(client, pid, path, conditional=one) for one in (False, True))
            print(f"{kind:7} {path[:30]:30} {plain:>7} {tagged:>8}", flush=True)


@dataclass
class Load:
    """Results of a mixed minute."""

    seconds: list[float] = field(default_factory=list)
    answers: Counter[str] = field(default_factory=Counter)
    tags: dict[str, str] = field(default_factory=dict)

    async def ask(self, client: httpx.AsyncClient, path: str, *, conditional: bool) -> None:
        headers = {"If-None-Match": self.tags[path]} if conditional and path in self.tags else {}
        began = time.perf_counter()
        try:
            answer = await client.get(path, headers=headers)
        except httpx.HTTPError as error:
            self.answers[type(error).__name__] += 1
            return
        self.seconds.append(time.perf_counter() - began)
        self.answers[str(answer.status_code)] += 1
        if tag := answer.headers.get("ETag"):
            self.tags[path] = tag


async def mixed_minute(home: Home, token: str, kinds: dict[str, tuple[str, ...]]) -> Load:
    """Send `RATE` requests per second: 7 of 10 REST's, 3 pages; metrics like a scraper."""
    load, chance = Load(), random.Random(1)
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        clients = [await stack.enter_async_context(opened(home, token)) for _ in range(CLIENTS)]
        start = time.perf_counter()
        for n in range(RATE * SECONDS):
            await asyncio.sleep(max(0.0, start + n / RATE - time.perf_counter()))
            kind = (
                "metrics" if n % (15 * RATE) == 0 else "REST" if chance.random() < 0.7 else "pages"
            )
            conditional = chance.random() < CONDITIONAL
            path = chance.choice(kinds[kind])
            tasks.create_task(load.ask(clients[n % CLIENTS], path, conditional=conditional))
    return load


def opened(home: Home, token: str) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=100)
    headers = {"Authorization": f"Bearer {token}", "Accept-Encoding": "gzip"}
    return httpx.AsyncClient(base_url=home.url, headers=headers, limits=limits, timeout=30)


async def streams(home: Home, token: str, run: str, pid: int) -> None:
    """Follow one run with `STREAMS` event streams for ten seconds."""
    heard: Counter[int] = Counter()
    refused: Counter[str] = Counter()

    async def follow(client: httpx.AsyncClient, number: int) -> None:
        try:
            async with client.stream("GET", f"/api/v1/runs/{run}/events") as answer:
                answer.raise_for_status()
                async for line in answer.aiter_lines():
                    heard[number] += line.startswith("id:")
        except httpx.HTTPError as error:
            refused[type(error).__name__] += 1

    async with opened(home, token) as client:
        tasks = [asyncio.create_task(follow(client, n)) for n in range(STREAMS)]
        await asyncio.sleep(10)
        before, began, cpu = Counter(heard), time.perf_counter(), cpu_s(pid)
        await asyncio.sleep(10)
        events = heard.total() - before.total()
        took, work = time.perf_counter() - began, cpu_s(pid) - cpu
        reads = [await timed(client, "/api/v1/runs") for _ in range(50)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    print(
        f"{STREAMS} event streams: {len(heard)} heard {events:,} events in {took:.0f} s, refused"
        f" {dict(refused)}, {work / took:.0%} of a core; a read beside them {_ms(reads)}"
    )


async def timed(client: httpx.AsyncClient, path: str) -> float:
    began = time.perf_counter()
    (await client.get(path)).raise_for_status()
    return time.perf_counter() - began


def _ms(seconds: list[float]) -> str:
    cuts = statistics.quantiles(seconds, n=100)
    return f"p50 {cuts[49] * 1e3:.0f}, p95 {cuts[94] * 1e3:.0f}, p99 {cuts[98] * 1e3:.0f} ms"


def main() -> int:
    """Measure and print; 1 if a request of the minute had no right answer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--postgres", action="store_true", help="instead of SQLite")
    args = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as name,
        controller(Path(name), postgres=args.postgres) as home,
        SshHost(Path(name) / "hosts") as host,
    ):
        (home.path / "keys").mkdir(exist_ok=True)
        shutil.copy(host.keys_dir / f"{host.name}_key", home.path / "keys")
        made: Any = home.json("token", "create", "load", "--scope", "admin")
        token, pid = made["secret"], home.controller_pid()
        headers = {"Authorization": f"Bearer {token}", "Accept-Encoding": "gzip"}
        with httpx.Client(base_url=home.url, headers=headers, timeout=30) as client:
            kinds = addresses(client)
            idle_reads(client, pid, kinds)
            run = begin_run(home, host, Path(name), 300)
            eventually(lambda: home.tests_stored(run))
            kinds["REST"] += (f"/api/v1/runs/{run}",)
            kinds["pages"] += (f"/runs/{run}",)
        cpu = cpu_s(pid)
        load = asyncio.run(mixed_minute(home, token, kinds))
        work = (cpu_s(pid) - cpu) / SECONDS
        print(
            f"{RATE} requests a second for {SECONDS} s beside a run: {_ms(load.seconds)}, answers"
            f" {dict(load.answers)}, {work:.0%} of a core, load {os.getloadavg()[0]:.1f}"
        )
        asyncio.run(streams(home, token, run, pid))
        home.seatrial("cancel", run)
    return 0 if set(load.answers) <= {"200", "304"} else 1


if __name__ == "__main__":
    sys.exit(main())
