"""Tell every lie and print what the gates said: `python -m tests.adversary [WORD ...]`.

A lie is a payload, or a way of running it, that wants a PASS for a subject with a defect. Each is
told on this computer and on a host over SSH, to a gate whose policy says no more than where, and
to the shipped gates/release.yaml. First an honest payload has to pass, and to find the defect.

Exit code 1: a lie had a PASS that is not inherent, or an inherent one is not shown by the verdict
or passes a gate that demands that the payload was reviewed.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import re
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue

from tests.adversary import (
    baselines,
    codes,
    disguises,
    histories,
    leavings,
    people,
    platforms,
    programs,
    records,
    selections,
    skips,
    stand_ins,
    subjects,
)
from tests.adversary.inherent import INHERENT
from tests.adversary.lie import Lie
from tests.adversary.scene import (
    GOOD,
    POLICY,
    RefusedError,
    Scene,
    Verdict,
    release_spec,
)
from tests.adversary.stage import Stage, a_stage
from tests.login_hosts import login_host_missing

MODULES = (
    subjects,
    codes,
    skips,
    selections,
    records,
    programs,
    histories,
    baselines,
    platforms,
    people,
    leavings,
    stand_ins,
    disguises,
)
LIES: tuple[Lie, ...] = tuple(lie for module in MODULES for lie in module.LIES)
_TODAY = datetime.now(UTC).toordinal()
REVIEWED = {"evidence": {"payload_level": "reviewed"}}


@dataclass(frozen=True)
class Told:
    """What became of one lie."""

    lie: Lie
    place: str
    said: str
    """The gate's decision, or that the product refused to take part."""
    why: str
    trouble: str = ""
    """Why this is not as it should be."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.adversary", description=__doc__)
    parser.add_argument("words", nargs="*", help="only lies with one of these words in their name")
    parser.add_argument("--place", choices=("local", "ssh"), help="only there")
    parser.add_argument("--sample", type=int, help="so many of them, others every day")
    parser.add_argument("--seed", type=int, default=_TODAY, help="of the sample")
    parser.add_argument("--workers", type=int, default=2, help="lies at a time")
    given = parser.parse_args()
    chosen = [lie for lie in LIES if not given.words or any(w in lie.name for w in given.words)]
    if given.sample:
        print(f"a sample of {given.sample}; --seed {given.seed} tells it again")
        chosen = random.Random(given.seed).sample(chosen, min(given.sample, len(chosen)))
    places = [given.place] if given.place else ["local", "ssh"]
    if "ssh" in places and (missing := login_host_missing()):
        print(f"not told over SSH: {missing}")
        places.remove("ssh")
    with tempfile.TemporaryDirectory(prefix="adversary-") as folder:
        Path(folder).chmod(0o755)
        told = [
            each
            for place in places
            for each in tell_all(chosen, place, Path(folder), given.workers)
        ]
    return conclude(told)


def tell_all(lies: Sequence[Lie], place: str, folder: Path, workers: int) -> list[Told]:
    """Tell those that belong to a place, some at a time."""
    lies = [lie for lie in lies if place in lie.places]
    with contextlib.ExitStack() as open_stages:
        free: SimpleQueue[Stage] = SimpleQueue()
        for number in range(min(workers, len(lies))):
            free.put(open_stages.enter_context(a_stage(place, folder / f"{place}-{number}")))
        stage = free.get()
        check_honest(stage, folder / f"{place}-honest")
        free.put(stage)

        def told(number: int, lie: Lie) -> Told:
            stage = free.get()
            try:
                found = tell(lie, stage, folder / f"{place}-lie-{number}", f"lie-{number}")
            finally:
                free.put(stage)
            print(line(found), flush=True)
            return found

        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(told, range(len(lies)), lies))


def check_honest(stage: Stage, folder: Path) -> None:
    """Without this no refusal proves anything: what is sound passes, and the defect is found."""
    scene = Scene(stage, folder, "honest")
    run = scene.run()
    found = scene.check(run)
    assert found.decision == "FAIL", f"honest tests of the defect: {found}"
    scene.subject(GOOD, version="1.1")
    run = scene.run()
    for spec in (POLICY, release_spec(POLICY)):
        found = scene.check(run, spec=spec)
        assert found.decision == "PASS", f"honest tests of a sound subject: {found}"


def tell(lie: Lie, stage: Stage, folder: Path, product: str) -> Told:
    """Tell one lie; PASS under either policy is a PASS."""
    scene = Scene(stage, folder, product)
    try:
        runs = lie.tell(scene)
        verdicts = [scene.check(*runs, spec=s) for s in (lie.spec, release_spec(lie.spec))]
    except RefusedError as error:
        return Told(lie, stage.place, "refused", str(error))
    passed = [verdict for verdict in verdicts if verdict.passed]
    if not passed:
        return Told(lie, stage.place, verdicts[0].decision, reasons(verdicts[0]))
    if not lie.inherent or stage.place not in lie.inherent_at:
        return Told(lie, stage.place, passed[0].decision, "", trouble="a lie had a PASS")
    trouble = "" if lie.shows in passed[0].text else f"the verdict does not name {lie.shows}"
    try:
        strict = scene.check(*runs, spec={**lie.spec, **REVIEWED}).decision
    except RefusedError as error:
        strict = f"no verdict ({error})"
    if strict != "FAIL":
        trouble = f"{strict} though the policy demands a reviewed payload"
    return Told(
        lie, stage.place, passed[0].decision, f"inherent: {INHERENT[lie.inherent]}", trouble
    )


def reasons(verdict: Verdict) -> str:
    """The rules that keep it from passing; that of the job with its sentence, where it is one."""
    first = next((rule for rule in verdict.rules if "@" in rule), next(iter(verdict.rules), ""))
    return f"{', '.join(verdict.rules)}: {verdict.rules.get(first, '')}"


def line(told: Told) -> str:
    """One row of the table."""
    mark = "WRONG" if told.trouble else "ok"
    text = re.sub(r"\s+", " ", f"{told.trouble} {told.why}".strip())
    return f"{mark:5}  {told.place:5}  {told.said:12}  {told.lie.name:64}  {text[:240]}"


def conclude(told: Sequence[Told]) -> int:
    """Print the sum; 1 where anything is not as it should be."""
    wrong = [each for each in told if each.trouble]
    kinds = {each.lie.inherent for each in told if each.lie.inherent}
    inherent = sum(bool(each.lie.inherent and not each.trouble) for each in told)
    print("\n".join(["", *map(line, wrong)]))
    print(
        f"{len(told)} lies told: {len(told) - len(wrong) - inherent} refused, {inherent} inherent "
        f"(of {len(kinds)} kinds), {len(wrong)} wrong"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
