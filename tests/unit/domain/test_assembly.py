"""From what foreign artifacts say to jobs, sources and events."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from orchestrator.domain.assembly.results_pass import ForeignArtifact
from orchestrator.domain.ingest_notes import IngestNotes, NotedJob, NotedSuite
from orchestrator.domain.ingested import SourceState
from orchestrator.domain.outcome import Counts, Outcome
from orchestrator.domain.outcome import TestOutcome as Result
from orchestrator.domain.parsed_results import (
    ParsedCheck,
    ParsedDetail,
    ParsedEnd,
    ParsedEnvironment,
    ParsedFallback,
    ParsedJob,
    ParsedMetric,
    ParsedProblem,
    ParsedSubtests,
    ParsedTally,
    ParsedTest,
    ParsedTime,
    ParsedUnnamedTests,
    ParsedVersion,
    Provenance,
)
from tests.unit.domain.assembly_cases import cell_of, result_facts, suite, text

PASSED, FAILED, ERROR, SKIPPED = Result.PASSED, Result.FAILED, Result.ERROR, Result.SKIPPED


def test_a_suite_is_named_after_its_module_and_passes():
    cell = cell_of(text("log.txt", *suite("tests/test_fp8_native.py", [PASSED, SKIPPED])))
    assert [(job.id, job.title) for job in cell.assembly.jobs] == [("fp8-native", "FP8 Native")]
    assert cell.verdict("fp8-native") is Outcome.PASSED
    assert cell.counts("fp8-native") == Counts(passed=1, skipped=1)
    assert cell.facts.jobs["fp8-native"].duration_s == 7.5
    [source] = cell.assembly.sources
    assert (source.announced, source.named, source.summed) == (2, 2, 2)
    assert source.state is SourceState.READ
    assert source.jobs == ("fp8-native",)


def test_two_modules_of_one_log_are_two_suites_and_one_ones_failure_is_not_the_others():
    said = [*result_facts("tests/test_a.py", [PASSED]), *result_facts("tests/test_b.py", [FAILED])]
    end = [ParsedTally("footer", 2, {"passed": 1, "failed": 1}, 3.0), ParsedEnd(exit_code=1)]
    cell = cell_of(text("log.txt", *said, *end))
    assert cell.verdict("a") is Outcome.PASSED
    assert cell.verdict("b") is Outcome.FAILED
    assert cell.facts.jobs["a"].duration_s == 0.5


def test_an_exit_code_that_no_test_explains_fails_the_suite():
    said = [*suite("tests/test_a.py", [PASSED]), ParsedEnd(exit_code=1)]
    assert cell_of(text("log.txt", *said)).verdict("a") is Outcome.FAILED


@pytest.mark.parametrize(("modules", "jobs"), [(12, 12), (13, 1)])
def test_more_than_twelve_modules_are_one_suite_an_artifact(modules, jobs):
    said = [test for n in range(modules) for test in result_facts(f"tests/test_m{n}.py", [PASSED])]
    cell = cell_of(text("all_tests.txt", *said, ParsedEnd(0)))
    assert len(cell.jobs) == jobs
    if jobs == 1:
        assert cell.jobs == {"all-tests": "suite"}
        assert cell.counts("all-tests") == Counts(passed=13)


@pytest.mark.parametrize(
    ("modules", "names"),
    [
        (["a/test_x.py", "b/test_x.py"], ["a-x", "b-x"]),
        (["tests/test_x.py", "tests/sub/test_x.py"], ["tests-x", "sub-x"]),
        (["test_x.py", "b/test_x.py"], ["x", "b-x"]),
        (["a/c/test_x.py", "b/c/test_x.py"], ["a-c-x", "b-c-x"]),
        (["a-b/test_x.py", "a/b/test_x.py", "test_y.py"], ["a-b-x", "b-x", "y"]),
        (["a-b/test_x.py", "a_b/test_x.py"], ["a-b-x", "a-b-x-2"]),
    ],
)
def test_suites_of_the_same_name_have_their_folders_in_it_in_any_order(modules, names):
    found = dict(zip(modules, names, strict=True))
    for order in (modules, modules[::-1]):
        said = [test for module in order for test in result_facts(module, [PASSED])]
        cell = cell_of(text("log.txt", *said, ParsedEnd(0)))
        assert set(cell.jobs) == set(names)
        for module in modules:
            jobs = {job for job, nodeid in cell.facts.tests if nodeid.startswith(f"{module}::")}
            assert jobs == {found[module]}


def test_notes_say_which_tests_are_which_suite_and_what_jobs_are_called():
    notes = IngestNotes(
        suites=(NotedSuite(id="moe", title="MoE Tests", match="tests/test_a.py"),),
        jobs={"the-demo": NotedJob(title="The Demo", kind="use-case", file="d.txt")},
    )
    said = [
        *result_facts("tests/test_a.py", [PASSED]),
        *result_facts("tests/test_b.py", [PASSED]),
        ParsedEnd(0),
    ]
    demo = text("sub/d.txt", ParsedJob(kind="demo"), ParsedCheck("x", "passed"), ParsedEnd(0))
    cell = cell_of(text("log.txt", *said), demo, notes=notes)
    told = [(job.id, job.kind, job.title) for job in cell.assembly.jobs]
    assert told == [
        ("moe", "suite", "MoE Tests"),
        ("b", "suite", "B"),
        ("the-demo", "use-case", "The Demo"),
    ]


def test_a_test_in_two_artifacts_counts_once_as_the_worst_and_is_told_of():
    cell = cell_of(
        text("log.txt", *suite("tests/test_a.py", [PASSED, PASSED])),
        text(
            "x.xml", *suite("tests/test_a.py", [FAILED, PASSED]), provenance=Provenance.STRUCTURED
        ),
    )
    assert cell.counts("a") == Counts(passed=1, failed=1)
    assert cell.assembly.repeated == 2
    [one] = cell.assembly.disagreements
    assert one.job == "a"
    assert one.sources == (("log.txt", "passed"), ("x.xml", "failed"))
    assert any("counts once, as the worst" in notice.message for notice in cell.facts.notices)
    assert all(source.state is SourceState.READ for source in cell.assembly.sources)


def test_a_test_whose_end_an_artifact_does_not_know_contradicts_nobody():
    cell = cell_of(
        text("a.txt", ParsedTest("t.py::x", Result.MISSING), ParsedEnd(0)),
        text("b.txt", ParsedTest("t.py::x", PASSED), ParsedEnd(0)),
    )
    assert cell.assembly.disagreements == ()
    assert cell.verdict("t") is Outcome.PASSED


def test_what_is_collected_and_not_named_is_missing_and_keeps_the_suite_from_passing():
    said = suite("tests/test_a.py", [PASSED] * 60)
    said[0] = ParsedTally("collected", 71)
    said[-1] = ParsedTally("footer", 71, {"passed": 71})
    cell = cell_of(text("log.txt", *said))
    assert cell.counts("a") == Counts(passed=60, missing=11)
    assert cell.verdict("a") is Outcome.FAILED
    [source] = cell.assembly.sources
    assert source.state is SourceState.INCONSISTENT
    assert source.remarks[0] == (
        "it announces 71 tests, names 60 and sums up 71; its sum says 71 passed, "
        "its lines say 60 passed: 11 are counted as missing"
    )


def test_a_surplus_is_missing_unless_another_file_of_these_tests_counts_it_as_subtests():
    tests = result_facts("tests/test_a.py", [PASSED])
    sums = ParsedTally("footer", 15, {"passed": 1})
    xml = text("f.xml", *tests, sums, ParsedEnd(), provenance=Provenance.STRUCTURED)
    alone = cell_of(xml)
    assert alone.counts("a") == Counts(passed=1, missing=14)
    assert alone.verdict("a") is Outcome.FAILED
    assert alone.source("f.xml").state is SourceState.INCONSISTENT
    for subtests, missing in ((14, 0), (13, 14)):
        log = [*suite("tests/test_a.py", [PASSED]), ParsedSubtests(subtests)]
        cell = cell_of(xml, text("log.txt", *log))
        assert cell.counts("a") == Counts(passed=1, missing=missing)
        assert (cell.verdict("a") is Outcome.PASSED) == (not missing)
        assert (cell.source("f.xml").state is SourceState.READ) == (not missing)


def with_subtests(name, module, *, ids=1, subtests=14):
    return text(name, *suite(module, [PASSED] * ids), ParsedSubtests(subtests))


def surplus(name, module):
    """A JUnit file that counts 15 tests and names one."""
    tests = result_facts(module, [PASSED])
    sums = ParsedTally("footer", 15, {"passed": 1})
    return text(name, *tests, sums, ParsedEnd(), provenance=Provenance.STRUCTURED)


def test_subtests_of_other_tests_explain_no_surplus():
    cell = cell_of(surplus("f.xml", "tests/test_a.py"), with_subtests("b.txt", "tests/test_b.py"))
    assert cell.counts("a") == Counts(passed=1, missing=14)
    assert cell.verdict("a") is Outcome.FAILED
    more = with_subtests("b.txt", "tests/test_a.py", ids=2)
    assert cell_of(surplus("f.xml", "tests/test_a.py"), more).verdict("a") is Outcome.FAILED


def test_the_subtests_of_a_log_explain_one_surplus():
    files = [surplus(name, "tests/test_a.py") for name in ("f.xml", "g.xml")]
    log = with_subtests("log.txt", "tests/test_a.py")
    cell = cell_of(*files, log)
    assert cell.verdict("a") is Outcome.FAILED
    states = [source.state for source in cell.assembly.sources]
    assert states == [SourceState.READ, SourceState.INCONSISTENT, SourceState.READ]


@pytest.mark.parametrize(
    ("module", "state"),
    [
        ("test_a.py", SourceState.READ),
        ("tests/test_a.py", SourceState.READ),
        ("est_a.py", SourceState.INCONSISTENT),
        ("test_b.py", SourceState.INCONSISTENT),
    ],
)
def test_a_log_of_a_run_below_the_root_explains_a_surplus_of_its_tests(module, state):
    cell = cell_of(surplus("f.xml", "src/tests/test_a.py"), with_subtests("log.txt", module))
    assert cell.source("f.xml").state is state


def test_figures_that_no_missing_test_explains_keep_the_suite_from_passing():
    said = [*result_facts("tests/test_a.py", [PASSED] * 3), ParsedTally("footer", 2, {"passed": 2})]
    cell = cell_of(text("log.txt", *said))
    assert cell.facts.jobs["a"].detail.startswith("it names 3 tests and sums up 2")
    assert cell.source("log.txt").state is SourceState.INCONSISTENT
    assert cell.verdict("a") is Outcome.FAILED


def test_a_whole_artifact_beside_a_torn_one_names_its_tests_and_is_not_its_end():
    torn = [ParsedTally("collected", 3), *result_facts("tests/test_a.py", [PASSED])]
    whole = suite("tests/test_a.py", [PASSED] * 3)
    cell = cell_of(text("torn.txt", *torn), text("whole.xml", *whole))
    assert cell.counts("a") == Counts(passed=3)
    assert cell.verdict("a") is Outcome.ERRORED
    assert cell.source("torn.txt").state is SourceState.INCONSISTENT


def test_a_torn_artifact_does_not_hide_that_another_one_tells_of_a_crash():
    torn = [ParsedTally("collected", 2), *result_facts("tests/test_a.py", [PASSED])]
    crashed = [*suite("tests/test_a.py", [PASSED] * 2), ParsedEnd(cause="crashed")]
    cell = cell_of(text("torn.txt", *torn), text("whole.txt", *crashed))
    assert cell.verdict("a") is Outcome.FAILED


def test_a_sum_that_tells_of_failures_nobody_has_fails_the_suite():
    said = [*result_facts("tests/test_a.py", [PASSED] * 2), ParsedTally("footer", 2, {"failed": 2})]
    cell = cell_of(text("log.txt", *said))
    assert cell.verdict("a") is Outcome.FAILED
    assert cell.source("log.txt").state is SourceState.INCONSISTENT


def test_an_error_at_teardown_beside_a_pass_is_no_contradiction():
    said = [
        ParsedTally("collected", 1),
        ParsedTest("t.py::x", PASSED),
        ParsedTest("t.py::x", ERROR, reason="teardown"),
        ParsedTally("footer", 2, {"passed": 1, "error": 1}),
    ]
    cell = cell_of(text("log.txt", *said))
    assert cell.source("log.txt").state is SourceState.READ
    assert cell.counts("t") == Counts(error=1)


def test_tests_of_one_name_count_once_and_that_is_told():
    said = [
        ParsedTally("collected", 2),
        ParsedTest("t.py::x", PASSED),
        ParsedTest("t.py::x", FAILED),
    ]
    sums = ParsedTally("footer", 2, {"passed": 1, "failed": 1})
    cell = cell_of(text("log.txt", *said, sums))
    [source] = cell.assembly.sources
    assert source.state is SourceState.READ
    assert source.remarks[0].startswith("1 of its tests are called like others")
    assert cell.counts("t") == Counts(failed=1)


def test_a_torn_suite_or_demo_does_not_pass():
    cell = cell_of(
        text("log.txt", ParsedTally("collected", 2), *result_facts("test_a.py", [PASSED])),
        text("demo.txt", ParsedJob(kind="demo"), ParsedCheck("x", "passed")),
    )
    assert cell.verdict("a") is Outcome.ERRORED
    assert cell.verdict("demo") is Outcome.ERRORED
    assert cell.counts("a") == Counts(passed=1, missing=1)


def test_a_log_that_ends_before_its_first_test_is_a_suite_that_misses_all():
    cell = cell_of(text("moe_tests.txt", ParsedTally("collected", 66)))
    assert cell.jobs == {"moe-tests": "suite"}
    assert cell.counts("moe-tests") == Counts(missing=66)


def test_details_find_their_tests_before_or_after_by_title_or_node_id():
    said = [
        ParsedDetail("tests/test_a.py::test_early", "early", "text 0"),
        ParsedTest("tests/test_a.py::test_early", FAILED),
        ParsedTest("tests/test_a.py::TestIt::test_one[a.b-c::d]", FAILED),
        ParsedTest("tests/test_a.py::TestIt::test_two", ERROR),
        ParsedDetail("TestIt.test_one[a.b-c::d]", "boom", "text 1"),
        ParsedDetail("TestIt.test_two", "bang", "text 2", "setup"),
        ParsedDetail("nobody", "?", "text 3"),
        ParsedTally("footer", 3, {"failed": 2, "error": 1}),
    ]
    cell = cell_of(text("log.txt", *said))
    told = {nodeid: test for (_, nodeid), test in cell.facts.tests.items()}
    assert told["tests/test_a.py::test_early"].text == "text 0"
    one = told["tests/test_a.py::TestIt::test_one[a.b-c::d]"]
    assert (one.message, one.text) == ("boom", "text 1")
    two = told["tests/test_a.py::TestIt::test_two"]
    assert (two.reason, two.text) == ("setup", "text 2")
    assert "1 of its failures' texts belong to no test" in cell.source("log.txt").remarks[-1]


def test_a_collection_error_that_only_a_section_tells_of_is_an_error():
    said = [
        *result_facts("test_a.py", [PASSED]),
        ParsedDetail("test_b.py", "", "trace", "collection"),
    ]
    cell = cell_of(text("log.txt", *said, ParsedTally("footer", 2, {"passed": 1, "error": 1})))
    assert cell.counts("b") == Counts(error=1)
    assert cell.source("log.txt").state is SourceState.READ


def test_counted_tests_without_names_count():
    said = [
        ParsedJob("fp8-training", "suite", "FP8 Training"),
        ParsedUnnamedTests({"passed": 10, "failed": 10}),
        ParsedJob("demo", "demo"),
        ParsedCheck("a", "passed"),
    ]
    cell = cell_of(text("transcription.yaml", *said, provenance=Provenance.TRANSCRIBED))
    assert cell.counts("fp8-training") == Counts(passed=10, failed=10)
    assert cell.verdict("fp8-training") is Outcome.FAILED
    assert cell.verdict("demo") is Outcome.PASSED
    assert cell.source("transcription.yaml").named == 20


def test_demos_and_benchmarks_are_named_after_their_files_and_keep_what_they_say():
    demo = text(
        "moe_demo.txt",
        ParsedJob(kind="demo"),
        ParsedCheck("same", "passed"),
        ParsedFallback("FlexAttention fell back"),
        ParsedCheck("same", "failed", inferred=True),
        ParsedEnd(1, inferred=True),
    )
    figures = text("moe_benchmark.txt", ParsedMetric("t", (7.79,), "ms", "lower"), ParsedEnd(0))
    cell = cell_of(demo, figures)
    assert cell.jobs == {"moe-demo": "demo", "moe-benchmark": "benchmark"}
    assert cell.facts.jobs["moe-demo"].degraded == "FlexAttention fell back"
    assert {name for _, name in cell.facts.checks} == {"same", "same (2)"}
    assert cell.facts.checks["moe-demo", "same (2)"].reason == "inferred"
    assert cell.facts.metrics[0].samples == (7.79,)
    assert cell.verdict("moe-demo") is Outcome.FAILED
    assert cell.verdict("moe-benchmark") is Outcome.PASSED


def test_a_metric_beyond_the_limits_is_left_out_and_said():
    good = ParsedMetric("t", (7.79,), "ms", "lower")
    bad = ParsedMetric("n" * 501, (1.0,), "ms", "lower"), ParsedMetric("x", (1e300,), "s", "lower")
    cell = cell_of(text("moe_benchmark.txt", good, *bad, ParsedEnd(0)))
    assert [metric.name for metric in cell.facts.metrics] == ["t"]
    [source] = cell.assembly.sources
    assert [remark.rpartition(": ")[2] for remark in source.remarks] == [
        "a name, unit or parameter's name has more than 500 characters",
        "a sample is not smaller than 1e+300",
    ]
    assert source.state is not SourceState.READ
    assert cell.verdict("moe-benchmark") is Outcome.FAILED


def test_a_job_of_an_unreliable_artifact_does_not_pass():
    spoilt = ParsedProblem("error", "lines that are no records: 1")
    tests = text("a.jsonl", *result_facts("test_a.py", [PASSED]), ParsedEnd(0), spoilt)
    metric = ParsedMetric("t", (7.79,), "ms", "lower")
    cell = cell_of(tests, text("b.json", metric, ParsedEnd(0), spoilt))
    assert {source.state for source in cell.assembly.sources} == {SourceState.INCONSISTENT}
    assert cell.verdict("a") is Outcome.FAILED
    assert cell.verdict("b") is Outcome.FAILED


def test_an_id_that_another_kind_has_is_not_taken_again():
    demo = text("moe.txt", ParsedJob(kind="demo"), ParsedCheck("x", "passed"), ParsedEnd(0))
    cell = cell_of(text("log.txt", *suite("test_moe.py", [PASSED])), demo)
    assert cell.jobs == {"moe": "suite", "moe-demo": "demo"}
    again = cell_of(demo, taken={"moe": "suite"})
    assert again.jobs == {"moe-demo": "demo"}


def test_environments_are_put_together_and_their_conflicts_told():
    first = {"torch": "2.7.1", "machine": {"devices": [{"name": "L4"}]}, "packages": {"a": "1"}}
    second = {"torch": "2.9.0", "machine": {"devices": [{"name": "NVIDIA L4", "uuid": "GPU-1"}]}}
    cell = cell_of(
        text("a.txt", ParsedEnvironment(first)),
        text("b.txt", ParsedEnvironment(second)),
    )
    assert cell.facts.environment == {
        "torch": "2.7.1",
        "machine": {"devices": [{"name": "L4", "uuid": "GPU-1"}]},
        "packages": {"a": "1"},
    }
    [notice] = cell.facts.notices
    assert notice.message == ("two environments in one: torch: a.txt says 2.7.1, b.txt says 2.9.0")


def test_stamps_of_another_version_are_told():
    stamps = [ParsedVersion("KernelPyTorch", "0.4.5"), ParsedVersion("kernel_pytorch", "0.4.6")]
    demo = text(
        "demo.txt", ParsedJob(kind="demo"), *stamps, ParsedCheck("x", "passed"), ParsedEnd(0)
    )
    [source] = cell_of(demo).assembly.sources
    assert source.stamps == ("KernelPyTorch 0.4.5", "kernel_pytorch 0.4.6")
    assert source.remarks == ("says KernelPyTorch v0.4.5, the subject is 0.4.6",)


def test_what_nobody_can_read_is_kept_and_what_breaks_off_is_not_relied_on():
    cell = cell_of(
        ForeignArtifact("blob.bin", "d" * 64, 3),
        text(
            "a.xml", *result_facts("test_a.py", [PASSED]), ParsedProblem("error", "it is cut off")
        ),
        text("b.xml", ParsedProblem("error", "it is no XML")),
    )
    states = {source.name: source.state for source in cell.assembly.sources}
    assert states == {
        "blob.bin": SourceState.KEPT,
        "a.xml": SourceState.INCONSISTENT,
        "b.xml": SourceState.KEPT,
    }
    assert cell.verdict("a") is Outcome.ERRORED


def test_the_same_again_gives_the_same_bytes():
    artifacts = (
        text("a.txt", *suite("test_a.py", [PASSED, FAILED]), ParsedVersion("x", "1.0")),
        text("b.txt", *suite("test_a.py", [PASSED, SKIPPED])),
    )
    assert cell_of(*artifacts).lines == cell_of(*artifacts).lines


def test_strange_names_stay_data():
    names = [
        "t.py::a\ud800b", "t.py::\x00", "::", "", "t.py::ü[\u202e]", ":noted x", ":own 0.0",
        ":suite x",
    ]  # fmt: skip
    said = [ParsedTest(name, PASSED) for name in names]
    cell = cell_of(text("\ud800.txt", *said, ParsedEnd(0)))
    total = sum((cell.counts(job) for job in cell.jobs), Counts())
    assert total.collected == len(names)


def test_the_earliest_time_counts_and_one_without_a_zone_is_said():
    early = ParsedTime(datetime.fromisoformat("2001-01-02T03:04"))
    late = ParsedTime(datetime(2001, 1, 3, tzinfo=UTC))
    cell = cell_of(
        text("a.xml", late, *result_facts("test_a.py", [PASSED])),
        text("b.xml", early, *result_facts("test_b.py", [PASSED])),
    )
    assert cell.assembly.happened == datetime(2001, 1, 2, 3, 4, tzinfo=UTC)
    first, second = cell.assembly.sources
    assert first.remarks == ()
    assert second.remarks == ("its times have no zone: they are taken as UTC",)
    first_line = json.loads(cell.lines[0])
    assert first_line["ts"] == cell.assembly.happened.timestamp()


def test_a_time_in_the_future_dates_nothing_and_is_remarked():
    ahead = ParsedTime(datetime(2101, 1, 1, tzinfo=UTC))
    cell = cell_of(text("a.xml", ahead, *suite("test_a.py", [PASSED])))
    assert cell.assembly.happened is None
    [source] = cell.assembly.sources
    assert source.remarks == ("it tells of 2101-01-01 00:00 UTC, which is in the future",)
    assert source.state is SourceState.READ
    assert cell.verdict("a") is Outcome.PASSED


def test_a_time_alone_is_no_result():
    cell = cell_of(text("a.xml", ParsedTime(datetime(2001, 1, 1, tzinfo=UTC))))
    assert [source.state for source in cell.assembly.sources] == [SourceState.KEPT]
