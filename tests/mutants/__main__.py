"""Plant every mutant and see its suites fail. Run: `python -m tests.mutants [MODULE[/NAME] ...]`.

A mutant is killed when a test fails on it: one that cannot be imported any more proves nothing and
counts as bad. The suites must be green without it. `--sample N` takes N mutants, evenly over the
modules; `--list` shows them.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from pathlib import Path

HERE = Path(__file__).parent
PAYLOAD = HERE.parents[1] / "payload"
TIMEOUT_S = 300  # a mutant may well hang: that is red too
IGNORED = shutil.ignore_patterns("__pycache__", ".pytest_cache")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One planted breakage."""

    module: str
    name: str
    file: str
    old: str
    new: str
    suites: tuple[str, ...]
    defect: int | None = None

    @property
    def id(self) -> str:
        """`module/name`."""
        return f"{self.module}/{self.name}"

    def trouble(self) -> str | None:
        """Why it cannot be planted."""
        path = PAYLOAD / self.file
        if not path.is_file():
            return f"{self.id}: there is no {self.file}"
        found = path.read_text("utf-8").count(self.old)
        if found != 1:
            return f"{self.id}: `old` occurs {found} times in {self.file}, not once"
        return f"{self.id}: `new` is `old`" if self.old == self.new else None

    def plant(self, payload: Path) -> None:
        """Write the breakage into a copy of the payload."""
        path = payload / self.file
        path.write_text(path.read_text("utf-8").replace(self.old, self.new), "utf-8")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the suites said of a mutant; `killer` is the first test that failed."""

    mutant: Mutant
    killed: bool
    seconds: float
    killer: str = ""
    trouble: str = ""


def load() -> list[Mutant]:
    """All mutants, by module and in the order of their files."""
    return [
        Mutant(module=path.stem, **entry | {"suites": tuple(entry["suites"])})
        for path in sorted(HERE.glob("*.toml"))
        for entry in tomllib.loads(path.read_text("utf-8"))["mutant"]
    ]


def sample(mutants: list[Mutant], size: int) -> list[Mutant]:
    """`size` of them, one module after the other."""
    modules: dict[str, list[Mutant]] = {}
    for mutant in mutants:
        modules.setdefault(mutant.module, []).append(mutant)
    in_turn = chain.from_iterable(zip_longest(*modules.values()))
    return list(islice((mutant for mutant in in_turn if mutant), size))


def run_pytest(
    payload: Path, suites: tuple[str, ...], *, timeout_s: float = TIMEOUT_S
) -> tuple[int, str]:
    """Exit code and output of the suites in a copy of the payload, up to the first failure."""
    arguments = ["-m", "pytest", "-x", "-rfE", "--tb=line", "-p", "no:cacheprovider", *suites]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    environment |= {"PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=payload,
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired:
        return -1, f"hung for {timeout_s} s"
    return done.returncode, done.stdout + done.stderr


def judge(mutant: Mutant) -> Verdict:
    """Plant one mutant in a copy of its own and run its suites."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="seatrial-mutant-") as folder:
        payload = Path(folder) / "payload"
        shutil.copytree(PAYLOAD, payload, ignore=IGNORED)
        mutant.plant(payload)
        code, output = run_pytest(payload, mutant.suites)
    seconds = time.monotonic() - start
    if code == -1:
        return Verdict(mutant, True, seconds, killer=output)
    failed = re.search(r"^FAILED (\S+)", output, re.MULTILINE)
    if code == 1 and failed:
        return Verdict(mutant, True, seconds, killer=failed[1])
    last = output.strip().splitlines()[-1:] or ["no output"]
    return Verdict(mutant, False, seconds, trouble=f"pytest exited {code}: {last[0]}")


def all_green(mutants: list[Mutant], jobs: int) -> bool:
    """Do the suites pass on the payload as it is? Otherwise a red one proves nothing."""
    suites = sorted({suite for mutant in mutants for suite in mutant.suites})
    files = sorted({suite.split("::")[0] for suite in suites})
    with ThreadPoolExecutor(jobs) as pool:
        results = list(pool.map(lambda file: run_pytest(PAYLOAD, (file,), timeout_s=3600), files))
    for file, (code, output) in zip(files, results, strict=True):
        if code != 0:
            print(f"{file} is not green without any mutant (exit {code}):\n{output[-2000:]}")
    return all(code == 0 for code, _ in results)


def show(verdict: Verdict) -> None:
    """One line."""
    word = "killed" if verdict.killed else "SURVIVED"
    what = verdict.killer if verdict.killed else verdict.trouble
    print(f"{word:<9} {verdict.mutant.id:<44} {verdict.seconds:6.1f} s  {what}", flush=True)


def main() -> int:
    """0 when every mutant was killed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("wanted", nargs="*", metavar="MODULE[/NAME]")
    parser.add_argument("--sample", type=int, metavar="N")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--list", action="store_true")
    asked = parser.parse_args()
    mutants = load()
    if asked.wanted:
        mutants = [m for m in mutants if m.id in asked.wanted or m.module in asked.wanted]
    if asked.sample:
        mutants = sample(mutants, asked.sample)
    if asked.list:
        print(*(mutant.id for mutant in mutants), sep="\n")
        return 0
    if not mutants:
        parser.error(f"no such mutant; there are: {', '.join(sorted({m.module for m in load()}))}")
    start = time.monotonic()
    if troubles := [trouble for mutant in mutants if (trouble := mutant.trouble())]:
        print(*troubles, sep="\n")
        return 2
    if not all_green(mutants, asked.jobs):
        return 1
    with ThreadPoolExecutor(asked.jobs) as pool:
        verdicts = []
        for verdict in pool.map(judge, mutants):
            show(verdict)
            verdicts.append(verdict)
    killed = sum(verdict.killed for verdict in verdicts)
    minutes = (time.monotonic() - start) / 60
    print(f"mutants: {killed} of {len(verdicts)} killed in {minutes:.1f} min")
    return 0 if killed == len(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
