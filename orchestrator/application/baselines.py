"""Finds the earlier cells that a gate's cells are compared with, and compares their tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_

from orchestrator.application.cell_tests import (
    FINAL,
    NO_TESTS,
    CellTests,
    NodeIds,
    expected_tests,
    lost_tests,
    node_ids,
    own_jobs,
    union,
)
from orchestrator.application.context import Context
from orchestrator.application.describe_run import describe_cell
from orchestrator.application.freeze_cell import EarlierResults, machine_of
from orchestrator.application.gate_policies import policy_of
from orchestrator.application.gather_evidence import CountedCell, GatheredRun
from orchestrator.application.reused_results import results_of_cell
from orchestrator.domain.cell import Cell
from orchestrator.domain.event_facts import TestFact
from orchestrator.domain.gate.changes_of_tests import (
    BaselineTests,
    Names,
    Tests,
    changes_since,
)
from orchestrator.domain.gate.policy import GatePolicy, like
from orchestrator.domain.gate.snapshot import CellEvidence, JobEvidence, MachineEvidence
from orchestrator.domain.grouping import grouped
from orchestrator.domain.node_ids import AliasState, normal_nodeid
from orchestrator.domain.run_record import CellRecord, JobRecord
from orchestrator.store.reuse import LastGreen

_REFUSED = 20


@dataclass(frozen=True, slots=True)
class GatePlatforms:
    """Platform ids in the policies of a gate."""

    named: frozenset[str]
    """Platforms that the present policy names, even if no matrix has them."""
    required: frozenset[str]
    """Platforms of the present policy that are not advisory."""
    gone: frozenset[str]
    """Platforms that an earlier version of the policy named and the present version does not, or
    that an earlier version required and the present version has as advisory.
    """
    then: Mapping[str, frozenset[str]]
    """Required platforms of every version of the policy, by the version's digest."""
    policies: Mapping[str, GatePolicy]
    """Every version of the policy, by its digest."""

    @classmethod
    def read(cls, context: Context, policy: GatePolicy) -> GatePlatforms:
        """Read all versions of the gate's policy."""
        history = context.stores.gates.policy_history(policy.metadata.name)
        before = {one.digest: policy_of(one) for one in history}
        named, required = _ids(policy), _required(policy)
        then = {digest: _required(one) for digest, one in before.items()}
        gone = frozenset[str]().union(*map(_ids, before.values())) - named
        return cls(named, required, gone.union(*then.values()) - required, then, before)


def _ids(policy: GatePolicy) -> frozenset[str]:
    return frozenset(rule.id for rule in policy.spec.platforms)


def _required(policy: GatePolicy) -> frozenset[str]:
    return frozenset(rule.id for rule in policy.spec.platforms if rule.level == "blocking")


@dataclass(frozen=True, slots=True)
class CellBaseline:
    """The earlier results that a cell is compared with."""

    before: EarlierResults
    tests: tuple[BaselineTests, ...]
    """Tests in the runs that the gate passed last, and in the platform's last green run."""
    names: NodeIds
    """Node ids of all tests that were read, by job and `normal_nodeid`."""


def baselines(
    context: Context,
    policy: GatePolicy,
    gate_platforms: GatePlatforms,
    counted: Sequence[CountedCell],
) -> list[CellBaseline]:
    """Return the baseline of each cell.

    A cell is compared with earlier cells of its platform. A platform without earlier cells may have
    been renamed: its cells are compared with the cells of platforms in `GatePlatforms.gone`. If no
    required platform is new, the tests of platforms that are no longer required are added to the
    baseline of the first required cell, as far as no required cell has them now.

    Args:
        context: What the operations work with.
        policy: The gate's policy.
        gate_platforms: The platforms in the gate's policies.
        counted: The present runs' cells that count.
    """
    finder = _BaselineFinder(
        context, policy, gate_platforms, [one.parts[0].cell for one in counted]
    )
    now = [_present_tests(one) for one in counted]
    anywhere = reduce(
        or_,
        (
            tests
            for one, tests in zip(counted, now, strict=True)
            if one.parts[0].cell.platform.id in gate_platforms.required
        ),
        NO_TESTS,
    )
    return [finder.baseline(one, anywhere) for one in counted]


def _present_tests(one: CountedCell) -> CellTests:
    """Return the tests of a cell; of a job that was rerun, the tests of the last run."""
    tests: dict[str, list[TestFact]] = {}
    jobs: dict[str, JobRecord] = {}
    for part in one.parts:
        own = grouped((test.job, test) for test in part.taken.evidence.tests.get(part.cell.id, ()))
        tests |= own
        jobs |= {job.id: job for job in own_jobs(part.cell)}
    facts = CellTests.from_facts(test for some in tests.values() for test in some)
    return facts | CellTests.from_jobs(jobs.values())


@dataclass(frozen=True, slots=True)
class _Accepted:
    """The evidence that a gate passed last."""

    runs: frozenset[str]
    cells: Sequence[Cell]
    """Cells of these runs; of each name, only those with the payload of its last run. A test that
    this payload lacks was removed.
    """
    signatures: frozenset[str]
    """Signatures of the failures."""
    policy: str
    """Digest of the policy; empty if the gate passed nothing."""

    @classmethod
    def read(cls, context: Context, gate: str, without: Sequence[str]) -> _Accepted:
        stores = context.stores
        green = stores.gates.last_passed(gate, without=without)
        runs = sorted(green.runs) if green else []
        payloads = {run: run_.payload_digest for run in runs if (run_ := stores.runs.get(run))}
        cells = [cell for run in payloads for cell in stores.cells.of_run(run)]
        last = {cell.name: payloads[cell.run_id] for cell in cells}
        failures = (one for run in runs for one in stores.failures.of_run(run))
        return cls(
            frozenset(runs),
            [cell for cell in cells if payloads[cell.run_id] == last[cell.name]],
            frozenset(failure.signature.id for failure in failures),
            green.verdict.policy_digest if green else "",
        )


class _BaselineFinder:
    """Finds the earlier cells that count for a cell."""

    def __init__(
        self,
        context: Context,
        policy: GatePolicy,
        gate_platforms: GatePlatforms,
        present: Sequence[CellRecord],
    ) -> None:
        self._context, self._gate_platforms = context, gate_platforms
        self._present = frozenset(cell.id for cell in present)
        self._environments: dict[str, dict[str, str]] = {}
        self._required = [cell for cell in present if cell.platform.id in gate_platforms.required]
        for cell in sorted(present, key=lambda cell: cell.id):
            self._environments.setdefault(cell.platform.id, {})[cell.environment] = cell.id
        self._gate, self._product = policy.metadata.name, policy.metadata.product
        self._ingested = policy.spec.evidence.attestation == "optional"
        self._passed: dict[tuple[str, ...], _Accepted] = {}
        self._tests: dict[str, CellTests] = {}
        self._records: dict[str, CellRecord] = {}
        self._names: dict[str, dict[str, set[str]]] = {}

    def _accepted(self, without: Iterable[str]) -> _Accepted:
        """Return the evidence that the gate passed last, by a verdict on none of these runs."""
        runs = tuple(sorted(set(without)))
        if runs not in self._passed:
            self._passed[runs] = _Accepted.read(self._context, self._gate, runs)
        return self._passed[runs]

    def baseline(self, one: CountedCell, anywhere: CellTests) -> CellBaseline:
        """Return the baseline of a cell; `anywhere` are the tests of all cells."""
        first, accepted = one.parts[0], self._accepted(part.taken.id for part in one.parts)
        gates, platform = self._context.stores.gates, first.cell.platform.id
        green = self._last_greens(one, is_new=not accepted.cells)
        groups = [*self._groups(one, accepted.cells)]
        for run in green:
            groups += self._groups(one, self._cells_of(run))
        jobs = frozenset(job.id for part in one.parts for job in part.cell.jobs)
        tests, ran, was_green = list[BaselineTests](), dict[str, Tests](), dict[str, Tests]()
        for group in dict.fromkeys(map(tuple, groups)):
            had = expected_tests(self._by_name(group), anywhere, jobs)
            ran, was_green = union(ran, had.ran), union(was_green, had.passed)
            runs = dict.fromkeys(cell.run_id for cell in group if self._tests_of(cell) != NO_TESTS)
            tests += [BaselineTests(tuple(runs), had.collected)] if runs else []
        for earlier, had in self._while_advisory(one, accepted):
            ran, was_green = union(ran, had.ran), union(was_green, had.passed)
            tests.append(BaselineTests((earlier,), had.collected))
        tests += self._environments_gone(one, accepted.cells)
        for cell in self._dropped(one, accepted):
            had = self._tests_of(cell)
            ran = union(ran, lost_tests(had.ran, anywhere.ran))
            was_green = union(was_green, lost_tests(had.passed, anywhere.passed))
            lost = lost_tests(had.collected, anywhere.collected)
            if lost and one.parts[0].cell.id == min(each.id for each in self._required):
                tests.append(BaselineTests((cell.run_id,), lost))
        streak = gates.green_streak(
            self._product, platform, before_run=first.taken.id, ingested=self._ingested
        )
        known = reduce(union, (each.by_job for each in tests), dict[str, Tests]())
        before = EarlierResults(
            streak,
            max((self._collected(first.cell.id, run) or 0 for run in green), default=0) or None,
            accepted.signatures,
            {(job, name): name in was_green.get(job, ()) for job in ran for name in ran[job]},
            {job: sorted(names.elements()) for job, names in known.items()},
        )
        return CellBaseline(before, tuple(tests), self._names)

    def _while_advisory(
        self, one: CountedCell, accepted: _Accepted
    ) -> Iterator[tuple[str, CellTests]]:
        """Yield (run, tests) of jobs that were advisory when the gate passed, from earlier runs.

        An advisory job could not fail the gate, so a PASS does not accept its lost tests, except
        tests that the policy gave up.
        """
        record, runs = one.parts[0].cell, {part.taken.id for part in one.parts}
        policies: list[GatePolicy] = []

        def is_kept(job: str, name: str) -> bool:
            return all(
                _is_advisory(each, record.platform.id, job)
                and not each.spec.evidence.manifest.gives_up(name)
                for each in policies
            )

        while len(policies) < _REFUSED and (
            then := self._gate_platforms.policies.get(accepted.policy)
        ):
            if all(rule.level == "blocking" for rule in then.spec.jobs):
                return
            policies.append(then)
            runs |= accepted.runs
            accepted = self._accepted(runs)
            for cell in accepted.cells:
                had = self._tests_of(cell).only(is_kept) if cell.name == record.id else NO_TESTS
                if any(had.collected.values()):
                    yield cell.run_id, had

    def _collected(self, cell: str, green: LastGreen) -> int | None:
        """Return the number of tests that a cell had in a green run of its platform.

        For a new cell name, return the smallest number of a removed cell, because the new cell may
        replace that one; None if no cell was removed.
        """
        gone = [number for name, number in green.collected.items() if name not in self._present]
        return green.collected.get(cell, min(gone, default=None))

    def _groups(self, one: CountedCell, cells: Sequence[Cell]) -> Iterator[list[Cell]]:
        """Yield groups of the earlier cells that a cell is compared with."""
        record = one.parts[0].cell
        same = [cell for cell in cells if cell.name == record.id]
        here = [cell for cell in cells if _platform(cell) == record.platform.id]
        if same:
            yield same
            yield from self._swapped(one, same, cells)
        elif here:  # environments have other names
            yield [cell for cell in here if cell.name not in self._present] or here
        else:
            gone = [cell for cell in cells if _platform(cell) in self._gate_platforms.gone]
            yield from [gone] if gone else []

    def _dropped(self, one: CountedCell, accepted: _Accepted) -> list[Cell]:
        """Return the earlier cells of platforms that are no longer required, for a required cell.

        Empty for other cells, or if a required platform is new: its cells are compared with them.
        """
        known = {_platform(cell) for cell in accepted.cells}
        required = {cell.platform.id for cell in self._required}
        if one.parts[0].cell.platform.id not in required or not required <= known:
            return []
        dropped = (
            self._gate_platforms.then.get(accepted.policy, frozenset())
            - self._gate_platforms.required
        )
        return [cell for cell in accepted.cells if _platform(cell) in dropped]

    def _environments_gone(self, one: CountedCell, cells: Sequence[Cell]) -> list[BaselineTests]:
        """Return the tests of environments that the platform lost, by ``JOB.ENVIRONMENT``.

        Empty for every cell of the platform but the first, and if the platform has as many new
        environments as lost ones, because those may be renamed.
        """
        record, plan_of = one.parts[0].cell, self._context.stores.cells.plan
        present = self._environments[record.platform.id]
        then = {
            plan_of(cell.id).environment: cell
            for cell in cells
            if _platform(cell) == record.platform.id
        }
        gone = sorted(then.keys() - present.keys())
        if record.id != min(present.values()) or len(gone) <= len(present.keys() - then.keys()):
            return []
        return [
            BaselineTests(
                (then[name].run_id,),
                {f"{job}.{name}": had for job, had in self._tests_of(then[name]).collected.items()},
            )
            for name in gone
        ]

    def _swapped(
        self, one: CountedCell, same: Sequence[Cell], cells: Sequence[Cell]
    ) -> Iterator[list[Cell]]:
        """Yield earlier cells of other names on the cell's machine, if its own were on another."""
        others = [cell for cell in cells if cell.name != same[0].name]
        machine = _machine(one)
        if not others or machine is None or self._machine_of(same[-1]) == machine:
            return
        alike = [cell for cell in others if self._machine_of(cell) == machine]
        yield from [alike] if alike else []

    def _last_greens(self, one: CountedCell, *, is_new: bool) -> list[LastGreen]:
        """Return the last green run; of a new gate also those before each run that it refused.

        Runs that a gate refused before its first PASS remove no tests from its baseline. The newest
        `_REFUSED` runs, the first, and the last green run before the first are enough.
        """
        gates, own = self._context.stores.gates, [part.taken.id for part in one.parts]
        judged = gates.evaluated_runs(self._gate, before_run=min(own)) if is_new else []
        # "0" makes the next id after a run's own.
        refused = [f"{run}0" for run in dict.fromkeys([*judged[:_REFUSED], *judged[-1:]])]
        points = [one.parts[0].taken.id, *refused, *judged[-1:]]
        found = [self._last_green(one, point) for point in points]
        return list({green.run_id: green for green in found if green}.values())

    def _last_green(self, one: CountedCell, before_run: str) -> LastGreen | None:
        return self._context.stores.gates.last_green(
            self._product,
            one.parts[0].cell.platform.id,
            before_run=before_run,
            ingested=self._ingested,
        ) or self._last_green_elsewhere(one, before_run)

    def _last_green_elsewhere(self, one: CountedCell, before_run: str) -> LastGreen | None:
        """Return the newest green run of a platform in `gone` on the cell's machine, or None."""
        machine, gates = _machine(one), self._context.stores.gates
        found = [
            last
            for platform in sorted(self._gate_platforms.gone)
            if one.parts[0].cell.platform.id in self._gate_platforms.named
            and (
                last := gates.last_green(
                    self._product,
                    platform,
                    before_run=before_run,
                    ingested=self._ingested,
                )
            )
            and self._machine_of(self._context.stores.cells.get(last.cell_id)) == machine
        ]
        return max(found, key=lambda last: last.run_id, default=None)

    def _cells_of(self, last: LastGreen) -> list[Cell]:
        platform = last.cell.partition(".")[0]
        cells = self._context.stores.cells.of_run(last.run_id)
        return [cell for cell in cells if _platform(cell) == platform]

    def _by_name(self, cells: Iterable[Cell]) -> list[CellTests]:
        """Return the tests of cells by cell name."""
        found: dict[str, CellTests] = {}
        for cell in cells:
            found[cell.name] = found.get(cell.name, NO_TESTS) | self._tests_of(cell)
        return list(found.values())

    def _tests_of(self, cell: Cell) -> CellTests:
        if cell.id not in self._tests:
            facts = results_of_cell(self._context.stores, cell.id)
            jobs = CellTests.from_jobs(own_jobs(self._record_of(cell)))
            self._tests[cell.id] = CellTests.from_facts(facts) | jobs
            for job, names in node_ids(facts).items():
                known = self._names.setdefault(job, {})
                for name, own in names.items():
                    known.setdefault(name, set()).update(own)
        return self._tests[cell.id]

    def _machine_of(self, cell: Cell) -> MachineEvidence:
        return machine_of(self._record_of(cell))

    def _record_of(self, cell: Cell) -> CellRecord:
        if cell.id not in self._records:
            stores, at = self._context.stores, self._context.clock.now()
            spec = stores.runs.spec(cell.run_id)
            self._records[cell.id] = describe_cell(stores, cell, spec, at=at)
        return self._records[cell.id]


def _is_advisory(policy: GatePolicy, platform: str, job: str) -> bool:
    rules = (rule for rule in policy.spec.jobs if rule.on == "all" or platform in rule.on)
    found = next((rule for rule in rules if like(rule.id, job)), None)
    return found is not None and found.level == "advisory"


def _platform(cell: Cell) -> str:
    return cell.name.partition(".")[0]


def _machine(one: CountedCell) -> MachineEvidence | None:
    """Return the machine of a cell; None if it is unknown."""
    last = one.parts[-1].cell
    return machine_of(last) if last.ingested is None and last.attestation is not None else None


def with_changes(
    context: Context,
    product: str,
    cells: Sequence[CellEvidence],
    taken: Sequence[GatheredRun],
    then: Sequence[CellBaseline],
) -> tuple[CellEvidence, ...]:
    """Return the cells, with each job's changes against the tests of the cell's baseline."""
    collected = {one.id: one.evidence.tests for one in taken}
    reported = {
        one.id: {cell.id: CellTests.from_jobs(own_jobs(cell)) for cell in one.evidence.record.cells}
        for one in taken
    }
    renames = _renames(context, product)

    def whole(cell: CellEvidence, then: CellBaseline) -> CellEvidence:
        present = {job.id for job in cell.jobs}
        known = reduce(union, (one.by_job for one in then.tests), dict[str, Tests]())
        absent = {
            name: Names(then.names.get(name, {})).removed(tests)
            for name, tests in sorted(known.items())
            if name not in present
        }
        jobs = tuple(
            _with_changes(
                job,
                collected.get(job.run or cell.run, {}).get(cell.id, ()),
                reported.get(job.run or cell.run, {}).get(cell.id, NO_TESTS).collected,
                then,
                renames.get(job.id, {}),
            )
            for job in cell.jobs
        )
        return replace(cell, jobs=jobs, jobs_gone=absent)

    return tuple(map(whole, cells, then))


def _with_changes(
    job: JobEvidence,
    tests: Sequence[TestFact],
    reported: Mapping[str, Tests],
    then: CellBaseline,
    renames: Mapping[str, str],
) -> JobEvidence:
    """Return the job with its changes against the baselines; unchanged if they are unknown."""
    mine = [test for test in tests if test.job == job.id]
    had = job.counts.collected or any(one.by_job.get(job.id) for one in then.tests)
    if job.outcome not in FINAL or not had:
        return job
    is_known = len(mine) == job.counts.collected
    places = (*job.test_set.modules, *job.test_set.ignored)
    now = CellTests.from_facts(mine).collected.get(job.id, Counter[str]())
    changes = changes_since(
        job.id,
        now | reported.get(job.id, Counter()) if is_known else None,
        then.tests,
        renames=renames,
        left_out=[place.path for place in places],
        names=Names(then.names.get(job.id, {}), node_ids(mine).get(job.id, {})),
    )
    return replace(job, changes=changes)


def _renames(context: Context, product: str) -> Mapping[str, Mapping[str, str]]:
    """Return, by job, the confirmed new name of each older test name."""
    found: dict[str, dict[str, str]] = {}
    for one in context.stores.aliases.list(product=product, state=AliasState.CONFIRMED):
        found.setdefault(one.job, {})[normal_nodeid(one.old)] = normal_nodeid(one.new)
    return found
