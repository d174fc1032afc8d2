"""Plant mutants into the product and see a quick test fail. Run: `python -m tests.mutants.product`.

`product.jsonl` is the sample: a line for each mutant, with what became of it the last time:
`killed` (`by` names the test), `lives` (`why` says what a person found: an equivalent mutant, or
one that is not worth a test), `undecided` (there were more tests than time), `not covered` or
`gone` (its lines are). One that was killed must be killed again. Each verdict is saved at once.

Each mutant meets the tests that run its line, the shortest first. Which these are is recorded by
a run of the whole quick part in `var/mutants`, with the sources that it ran, as lines move: it
takes twice as long as `make test`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from queue import Queue

from coverage import CoverageData

from tests.mutants.covering import CHOOSE, PRODUCT, RECORD
from tests.mutants.mutations import Mutant, draw

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = Path(__file__).with_name("product.jsonl")
RECORDED = ROOT / "var/mutants"
SOURCES = "sources"
"""The folder of a recording that holds the product as it was."""
PYTEST = ("-p", "tests.mutants.covering", "-p", "no:cacheprovider", "-q", "--no-header")
ALREADY_IMPORTED = "ignore::pytest.PytestAssertRewriteWarning"
BROKEN = re.compile(r"^(?:FAILED|ERROR|ImportError while loading) (.+?)(?: - .*)?$", re.MULTILINE)
STAGES_S = (10.0, 60.0, 300.0)
"""Seconds of tests that a mutant meets at most, by stage: most are killed in the first."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a mutant: the first test that failed, or why it lives."""

    mutant: Mutant
    state: str = "not run"
    by: str = ""
    why: str = ""

    def as_line(self) -> str:
        """As it stands in the list."""
        facts = {"state": self.state, "by": self.by, "why": self.why}
        return json.dumps(asdict(self.mutant) | {k: v for k, v in facts.items() if v})


def load() -> list[Verdict]:
    """The sample, with the verdicts of the last run."""
    lines = map(json.loads, SAMPLE.read_text("utf-8").splitlines())
    names = ("state", "by", "why")
    return [
        Verdict(
            Mutant(**{name: value for name, value in line.items() if name not in names}),
            **{name: line[name] for name in names if name in line},
        )
        for line in lines
    ]


def save(verdicts: list[Verdict]) -> None:
    """Write the sample with its verdicts."""
    SAMPLE.write_text("".join(f"{verdict.as_line()}\n" for verdict in verdicts), "utf-8")


def listed(*patterns: str) -> list[str]:
    """The names of the files of the working tree, without those that git ignores."""
    command = ["git", "ls-files", "-z", "-co", "--exclude-standard", *patterns]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return [name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


def product() -> list[str]:
    """The names of the product's source files."""
    return listed(*(f"{folder}/*.py" for folder in PRODUCT))


class Copy:
    """A copy of the tree, and a process in it that runs pytest."""

    def __init__(self, root: Path) -> None:
        self.root = root
        python = str(root / ".venv/bin/python")
        variables = os.environ | {"OMP_NUM_THREADS": "1"}
        variables.pop("PYTHONDONTWRITEBYTECODE", None)  # each run would compile everything again
        self.process = subprocess.Popen(
            [python, "tests/contained.py", python, "-m", "tests.mutants.forking"],
            cwd=root,
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def failures(self, variables: dict[str, str], more: list[str], cpu_s: float) -> list[str]:
        """The tests that failed.

        Raises:
            RuntimeError: Pytest could not run the tests.
        """
        output = self.root / "var/output"
        output.parent.mkdir(exist_ok=True)
        arguments = [*PYTEST, "-W", ALREADY_IMPORTED, "-rfE", *more]
        request = {"arguments": arguments, "variables": variables, "cpu_s": int(cpu_s)}
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(request | {"output": str(output)}) + "\n")
        self.process.stdin.flush()
        code = int(self.process.stdout.readline())
        text = output.read_text("utf-8", "replace")
        if code in (0, 5):
            return []
        if code < 0:
            return [f"ended by signal {-code}, after {cpu_s:.0f} s of processor time at most"]
        if not (failed := BROKEN.findall(text)):
            raise RuntimeError(f"pytest exited {code}:\n{text[-2000:]}")
        return failed


@contextmanager
def copied() -> Iterator[Copy]:
    """A copy of the working tree to plant into, whose Python imports from it and nowhere else."""
    with tempfile.TemporaryDirectory(prefix="seatrial-mutants-") as folder:
        root = Path(folder)
        for name in listed():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, root / name)
        subprocess.run(["git", "init", "-q", "."], cwd=root, check=True)
        venv.create(root / ".venv", symlinks=True)
        (libraries,) = (root / ".venv").glob("lib/python3*/site-packages")
        there = sysconfig.get_path("purelib")
        (libraries / "copy.pth").write_text(f"{root}\n{there}\n", "utf-8")
        running = Copy(root)
        try:
            yield running
        finally:
            running.process.terminate()
            running.process.wait()


def record() -> None:
    """Run the quick part once, and keep which test runs which line."""
    shutil.rmtree(RECORDED, ignore_errors=True)
    RECORDED.mkdir(parents=True)
    print("recording which test runs which line", flush=True)
    for name in product():
        kept = RECORDED / SOURCES / name
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, kept)
    with copied() as copy:
        more = ["-n", "2", "--dist", "loadfile", "--part", "quick", "tests"]
        failed = copy.failures({RECORD: str(RECORDED)}, more, 3600)
    print(*(f"fails without a mutant: {test}" for test in failed), sep="\n", flush=True)


class Covering:
    """Which tests run a line, and how long they take."""

    def __init__(self, folder: Path) -> None:
        self.sources = folder / SOURCES
        self.seconds: dict[str, float] = {}
        for path in folder.glob("**/*.json"):
            self.seconds |= json.loads(path.read_text("utf-8"))
        self.by_file: dict[str, list[str]] = {}
        for test in self.seconds:
            self.by_file.setdefault(test.split("::")[0], []).append(test)
        self.data = [CoverageData(str(path)) for path in folder.glob("**/*.coverage")]
        for data in self.data:
            data.read()

    def tests(self, mutant: Mutant) -> list[str]:
        """Those that run its lines; those that run its file where that is not known.

        Lines that run at import have no test, and lines that are younger than the recording. The
        shortest test is the first.
        """
        try:
            first = mutant.moved(self.sources).line
            lines = range(first, first + mutant.old.count("\n"))
        except LookupError:
            lines = range(0)
        found: set[str] = set()
        whole_file: set[str] = set()
        for data in self.data:
            for path in data.measured_files():
                if path.endswith(f"/{mutant.file}"):
                    contexts = data.contexts_by_lineno(path)
                    found.update(*(contexts.get(line, ()) for line in lines))
                    whole_file.update(*contexts.values())
        tests = self.expanded(found) or self.expanded(whole_file)
        return sorted(tests, key=lambda test: self.seconds[test])

    def expanded(self, contexts: set[str]) -> set[str]:
        """The tests of contexts that are tests or test files."""
        tests = contexts & self.seconds.keys()
        return tests.union(*(self.by_file.get(context, ()) for context in contexts))

    def stages(self, mutant: Mutant) -> tuple[list[tuple[list[str], float]], int]:
        """The tests that a mutant meets, stage by stage with their seconds; how many are left."""
        tests = [test for test in self.tests(mutant) if (ROOT / test.split("::")[0]).is_file()]
        stages = []
        for most_s in STAGES_S:
            stage: list[str] = []
            spent = 0.0
            while tests and (not stage or spent + self.seconds[tests[0]] <= most_s):
                spent += self.seconds[tests[0]]
                stage.append(tests.pop(0))
            if stage:
                stages.append((stage, spent))
        return stages, len(tests)


def judge(verdict: Verdict, covering: Covering, copy: Copy) -> Verdict:
    """Plant one mutant and run the tests that cover it."""
    try:
        mutant = verdict.mutant.moved(copy.root)
        before = mutant.plant(copy.root)
    except LookupError as error:
        return replace(verdict, state="gone", by="", why=str(error))
    verdict = replace(verdict, mutant=mutant)
    try:
        forget_bytecode(copy.root / mutant.file)
        stages, left = covering.stages(mutant)
        for stage, spent in stages:
            if by := killer(copy, stage, spent):
                return replace(verdict, state="killed", by=by, why="")
        state = "not covered" if not stages else "undecided" if left else "lives"
        return replace(verdict, state=state, by="")
    finally:
        (copy.root / mutant.file).write_text(before, "utf-8")
        forget_bytecode(copy.root / mutant.file)


def killer(copy: Copy, stage: list[str], spent_s: float) -> str:
    """The first test that fails, or an empty text."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as choice:
        json.dump(stage, choice)
        choice.flush()
        files = sorted({test.split("::")[0] for test in stage})
        more = ["-x", "--tb=line", *files]
        failed = copy.failures({CHOOSE: choice.name}, more, 60 + 5 * spent_s)
    return failed[0] if failed else ""


def forget_bytecode(path: Path) -> None:
    """Remove what Python compiled of a file: an edit within a second may look the same to it."""
    for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
        compiled.unlink()


def judge_all(verdicts: list[Verdict], jobs: int) -> Iterator[tuple[Verdict, Verdict]]:
    """Judge in copies of the tree, one for each job; each mutant as it was and is, as they come."""
    covering = Covering(RECORDED)
    copies: Queue[Copy] = Queue()

    def one(verdict: Verdict) -> tuple[Verdict, Verdict]:
        copy, start = copies.get(), time.monotonic()
        try:
            judged = judge(verdict, covering, copy)
        finally:
            copies.put(copy)
        mutant, seconds = judged.mutant, time.monotonic() - start
        place = f"{mutant.file}:{mutant.line}"
        print(
            f"{judged.state:<11} {seconds:5.1f} s  {place}  {judged.by or mutant.kind}", flush=True
        )
        return verdict, judged

    with ExitStack() as stack, ThreadPoolExecutor(jobs) as pool:
        for _ in range(jobs):
            copies.put(stack.enter_context(copied()))
        for done in as_completed([pool.submit(one, verdict) for verdict in verdicts]):
            yield done.result()


def main() -> int:
    """0 when no mutant lives that was killed before."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("wanted", nargs="*", metavar="PATH", help="only mutants below these")
    parser.add_argument("--draw", type=int, metavar="N", help="first draw another sample of N")
    parser.add_argument("--seed", type=int, default=15)
    parser.add_argument("--record", action="store_true", help="first run the quick part again")
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    if asked.draw:
        sources = {name: (ROOT / name).read_text("utf-8") for name in product()}
        save([Verdict(mutant) for mutant in draw(sources, asked.draw, asked.seed)])
    if asked.record or not RECORDED.is_dir():
        record()
    known = load()
    chosen = [one for one in known if one.mutant.file.startswith(tuple(asked.wanted) or "")]
    judged: dict[int, Verdict] = {}
    for before, after in judge_all(chosen, asked.jobs):
        judged[id(before)] = after
        save([judged.get(id(one), one) for one in known])
    escaped = [one for one in chosen if one.state == "killed" != judged[id(one)].state]
    counts = Counter(one.state for one in judged.values())
    print("mutants:", *(f"{count} {state}" for state, count in counts.items()))
    print(
        *(f"was killed by {one.by}: {one.mutant.file}:{one.mutant.line}" for one in escaped),
        sep="\n",
    )
    return 1 if escaped else 0


if __name__ == "__main__":
    sys.exit(main())
