"""Policy files: what is ready-made, and what is refused with its place and the nearest name."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.adapters.files.document_nodes import read_yaml
from orchestrator.adapters.files.documents import FileDocuments
from orchestrator.domain.catalogue import promised
from orchestrator.domain.document_problems import InvalidDocumentError
from orchestrator.domain.gate.gate_documents import policy_digest
from orchestrator.domain.gate.policy import retest_options
from orchestrator.domain.gate.rules.platforms import expected
from orchestrator.domain.matrix import Matrix

ROOT = Path(__file__).resolve().parents[3]
READY = sorted((ROOT / "gates").glob("*.yaml"))
EXAMPLES = sorted((ROOT / "tests" / "golden" / "gates").glob("*.yaml"))
HEAD = """\
apiVersion: seatrial/v1
kind: ReleaseGate
metadata: {name: release, product: torchbridge, owner: team}
spec:
"""
PLATFORMS = "  platforms: [{id: gcp-l4}, {id: aws-a10g, level: advisory}]\n"


def refused(*lines: str, platforms: str = PLATFORMS) -> str:
    text = HEAD + platforms + "".join(f"  {line}\n" for line in lines)
    with pytest.raises(InvalidDocumentError) as found:
        FileDocuments().read_policy(text, "gate.yaml")
    return str(found.value)


@pytest.mark.parametrize("path", [*READY, *EXAMPLES], ids=lambda path: path.stem)
def test_policies_of_the_house_are_sensible(path: Path):
    FileDocuments().read_policy(path.read_text("utf-8"), path.name)


@pytest.mark.parametrize("path", READY, ids=lambda path: path.stem)
def test_a_ready_made_policy_is_for_its_matrix(path: Path):
    documents = FileDocuments()
    policy = documents.read_policy(path.read_text("utf-8"), path.name)
    matrix: Matrix = documents.read_matrix((ROOT / "matrices" / path.name).read_text(), path.name)
    assert {rule.id for rule in policy.spec.platforms} == {p.id for p in matrix.platforms}
    asked = {(job.id or job.select, job.on or "all") for job in matrix.jobs}
    assert {(rule.id, rule.on) for rule in policy.spec.jobs} == asked
    assert policy.metadata.product == matrix.subject.name
    types = {p.id: p.instance_type or p.accelerator_type for p in matrix.platforms}
    providers = {p.id: p.provider for p in matrix.platforms}
    for rule in policy.spec.platforms:
        assert rule.instance in ("", types[rule.id])
        assert expected(rule, promised(rule.id)).provider == providers[rule.id]


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (
            ["evidence: {max_age: 36}"],
            "max_age: must be a value such as 90m, 36h, 7d or 2w, not",
        ),
        (['evidence: {max_age: "36"}'], "max_age: '36' is no duration: write 90m, 36h, 7d or 2w"),
        (["exception_max_age: 7"], "must be a value such as 7d or 2w, not the number 7"),
        (["evidence: {manifest: {min_tests_vs_baseline: 95%}}"], "such as 0.95, not '95%'"),
        (["job: []"], "line 6, column 3: spec.job: there is no such key; did you mean 'jobs'?"),
        (["jobs: []", "jobs: []"], "line 7, column 3: document: the key 'jobs' occurs twice"),
        (["jobs: [{id: moe, on: [gcp-14]}]"], "line 6, column 25: spec.jobs.0.on.0: "),
        (["jobs: [{id: moe, on: [gcp-14]}]"], "names no 'gcp-14'; did you mean 'gcp-l4'?"),
        (["jobs: [{id: moe, on: []}]"], "name at least one platform, or `all`"),
        (['jobs: [{id: "*"}, {id: moe}]'], "spec.jobs.1.id: never counts: '*' above it"),
        (['jobs: [{id: "a b"}]'], "'a b' fits no job"),
        (["evidence: {max_age: 36 hours}"], "'36 hours' is no duration: write 90m, 36h, 7d or 2w"),
        (["evidence: {max_age: 0h}"], "spec.evidence.max_age: must be more than 0"),
        (["evidence: {attestation: allowed}"], "'allowed' is unknown; valid: optional, required"),
        (["evidence: {manifest: {on_missing: advisory}}"], "'advisory' is unknown"),
        (["evidence: {manifest: {min_tests_vs_baseline: 1.5}}"], "more than 0 and at most 1"),
        (["skips: {max: -1}"], "spec.skips.max: must be at least 0"),
        (["flaky: {max: 2}"], "has no use without `rerun_success: flaky`"),
        (["flaky: {reruns: 11}"], "must be from 0 to 10"),
        (["cost: {max_usd: 0}"], "spec.cost.max_usd: must be more than 0"),
        (["cost: {max_usd: '1e-400'}"], "spec.cost.max_usd: must be at least 0.0001"),
        (["cost: {max_usd: null}"], "spec.cost.max_usd: must be an amount"),
        (["approvals: {need: 0}"], "must be at least 1"),
        (["diagnosis: {max_minutes: 0}"], "must be more than 0"),
        (["performance: {budgets: []}"], "name at least one budget"),
        (["performance: {budgets: [{match: moe, max_regression: 3%}]}"], "write JOB/METRIC"),
        (
            ["performance: {budgets: [{match: a/b, max_regression: 3}]}"],
            "must be a value such as 3% or 2.5%",
        ),
        (["performance: {budgets: [{match: a/b, max_regression: 0%}]}"], "more than 0%"),
        (
            ["performance: {budgets: [{match: a/b, max_regression: 300%}]}"],
            "max_regression: '300%' must be more than 0% and less than 100%",
        ),
        (["performance: {budgets: [{match: a/b, max_regression: x}]}"], "is no percentage"),
        (["performance: {alpha: 1, budgets: [{match: a/b, max_regression: 3%}]}"], "at most 0.2"),
        (["performance: {min_pairs: 2, budgets: [{match: a/b, max_regression: 3%}]}"], "least 3"),
    ],
)
def test_what_makes_no_sense_is_refused(lines: list[str], told: str):
    assert told in refused(*lines)


WIDE_MATCHES = [
    *(f'{{frame: "{frame}"}}' for frame in (
        "t*", "*test*", "*_*", "test_*", "*test_a*", "*est*", "[a-z]*", "test_[a-m]*", "conftest*",
        "*.test_*", "t.*", "tests.*", "?*.??*", "*.Test*",
    )),
    '{exception: "A*"}', "{exception: AssertionError}", "{contains: assert}",
    '{exception: "*Error", frame: "test_*"}',
]  # fmt: skip
NARROW_MATCHES = [
    *(f'{{frame: "{frame}"}}' for frame in (
        "test_double.*", "*.test_moe", "fp8_training_engine.*", "test_a.test_b", "*test_decode*",
    )),
    '{exception: "Val*"}', "{exception: AssertionError, frame: test_moe.*}",
    '{exception: "*", contains: out of memory}',
]  # fmt: skip


@pytest.mark.parametrize("match", NARROW_MATCHES)
def test_a_match_that_names_something_needs_no_limits(match: str):
    text = f"{HEAD}{PLATFORMS}  known_issues: [{an_issue(match=match)}]\n"
    (issue,) = FileDocuments().read_policy(text, "gate.yaml").spec.known_issues
    assert not issue.match.is_anything


def an_issue(**more: str) -> str:
    told = {
        "id": "KI-1", "title": "t", "owner": "o", "match": "{exception: ValueError}",
        "opened": "2026-01-01", "expires": "2026-02-01", **more,
    }  # fmt: skip
    return "{" + ", ".join(f"{key}: {value}" for key, value in told.items()) + "}"


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"match": "{}"}, "says nothing: name a signature"),
        ({"match": '{exception: "* *"}'}, "match: would tolerate anything: say max_failures"),
        *(
            ({"match": match}, "match: would tolerate anything: say max_failures")
            for match in WIDE_MATCHES
        ),
        ({"match": "{contains: rr}"}, "match: would tolerate anything: say max_failures"),
        ({"match": "{contains: Error}"}, "match: would tolerate anything: say max_failures"),
        *(
            ({"match": f"{{contains: '{text}'}}"}, "match: would tolerate anything")
            for text in ("<n>", "] == [", "<n> == <n>", "<path>:<n>", "assert <n> == <n>", "x: 0")
        ),
        ({"expires": "2025-01-01"}, "2025-01-01 is before it was opened"),
        ({"expires": "soon"}, "must be a day such as 2026-03-01, not 'soon'"),
        ({"expires": "2026-02-30"}, "must be a day such as 2026-03-01"),
        ({"max_failures": "0"}, "must be at least 1"),
        ({"owner": '""'}, "must not be empty"),
        ({"scope": "{platforms: [gcp-14]}"}, "no platform 'gcp-14'; did you mean 'gcp-l4'?"),
        ({"scope": "{versions: about 2}"}, "must be a range such as"),
        ({"match": '{signature: "s1-*"}'}, "match.signature: 's1-*' is no signature"),
        ({"scope": '{requires_package: "==2"}'}, "must be a name"),
        ({"without_signature": "allowed"}, "say max_failures, scope.platforms, scope.jobs"),
    ],
)
def test_a_known_issue_that_means_too_little_or_too_much_is_refused(more, told: str):
    assert told in refused(f"known_issues: [{an_issue(**more)}]")


def test_exceptions_last_as_long_as_the_policy_says():
    long = f"known_issues: [{an_issue(opened='2026-01-01', expires='2999-01-01')}]"
    said = "2999-01-01 is 355381 days after it was opened: `exception_max_age` allows 90"
    assert f"spec.known_issues.0.expires: {said}" in refused(long)
    for age in ("12h", "90", "''"):
        assert "spec.exception_max_age: " in refused(f"exception_max_age: {age}")


def test_a_known_issue_without_an_end_is_refused():
    one = an_issue().replace(", expires: 2026-02-01", "")
    assert "spec.known_issues.0.expires: is missing" in refused(f"known_issues: [{one}]")


def test_an_id_stands_once():
    assert "'KI-1' occurs twice" in refused(f"known_issues: [{an_issue()}, {an_issue()}]")


def an_exception(rule: str, **more: str) -> str:
    told = {
        "id": "EXC-1", "rule": f'"{rule}"', "reason": "r", "author": "ann", "approved_by": "[bob]",
        "expires": "2026-02-01", **more,
    }  # fmt: skip
    return "exceptions: [{" + ", ".join(f"{key}: {value}" for key, value in told.items()) + "}]"


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("platform/gcp-14", "names no platform 'gcp-14'; did you mean 'gcp-l4'?"),
        ("platfrom/gcp-l4", "there is no rule 'platfrom/gcp-l4'; did you mean 'platform/gcp-l4'?"),
        ("job/moe", "say of which job and platform: job/JOB@gcp-l4"),
        ("job/moe@gcp-14", "names no platform 'gcp-14'"),
        ("freshness/gcp-l4", "nothing waives"),
        ("attestation/gcp-l4", "nothing waives"),
        ("evidence", "nothing waives"),
        ("flaky", "informational only"),
        ("cost", "the policy has no rule 'cost'"),
        ("performance/moe/time@gcp-l4", "the policy has no rule of performance"),
    ],
)
def test_an_exception_is_for_a_rule_that_can_exist(rule: str, told: str):
    assert told in refused(an_exception(rule))


@pytest.mark.parametrize("rule", ["platform/gcp-l4", "job/moe@gcp-l4.tpu", "missing/aws-a10g"])
def test_exceptions_for_rules_that_can_exist_are_taken(rule: str):
    text = HEAD + PLATFORMS + f"  {an_exception(rule)}\n"
    assert FileDocuments().read_policy(text, "gate.yaml").spec.exceptions[0].rule == rule


@pytest.mark.parametrize("who", ["[]", "[ann]", "[ANN, ' ann ']", "['']"])
def test_nobody_approves_alone_what_they_asked_for(who: str):
    said = refused(an_exception("platform/gcp-l4", approved_by=who))
    assert "somebody other than 'ann' must approve it" in said


def test_a_gate_needs_a_blocking_platform():
    said = refused(platforms="  platforms: [{id: a, level: advisory}]\n")
    assert "at least one platform must be blocking" in said
    assert "at least one platform must be blocking" in refused(platforms="  platforms: []\n")


@pytest.mark.parametrize(
    ("unavailable", "told"),
    [
        ("{verdict: exception, exception: EXC-7}", "there is no exception 'EXC-7'"),
        ("{verdict: fail, exception: EXC-1}", "has no use without `verdict: exception`"),
        ("{verdict: exception, exception: EXC-1}", "EXC-1 is for 'job/moe@a', not platform/a"),
        ("{substitute: {platform: a}}", "a platform is no substitute for itself"),
    ],
)
def test_an_unavailable_platform_names_its_own_exception(unavailable: str, told: str):
    rule = f"  platforms: [{{id: a, when_unavailable: {unavailable}}}]\n"
    assert told in refused(an_exception("job/moe@a"), platforms=rule)


def test_layout_and_comments_are_no_new_version():
    documents = FileDocuments()
    one = documents.read_policy(HEAD + PLATFORMS, "a.yaml")
    other = documents.read_policy(
        "# why\n" + HEAD + "  platforms:\n    - id: gcp-l4\n    - {level: advisory, id: aws-a10g}",
        "b.yaml",
    )
    stricter = documents.read_policy(HEAD + PLATFORMS + "  new_failures: {}\n", "c.yaml")
    assert policy_digest(one) == policy_digest(other) != policy_digest(stricter)


def test_json_is_read_as_well():
    text = HEAD + PLATFORMS
    documents = FileDocuments()
    sent = {
        "apiVersion": "seatrial/v1",
        "kind": "ReleaseGate",
        "metadata": {"name": "release", "product": "torchbridge", "owner": "team"},
        "spec": {"platforms": [{"id": "gcp-l4"}, {"id": "aws-a10g", "level": "advisory"}]},
    }
    assert documents.read_policy(sent, "body") == documents.read_policy(text, "file")


def test_the_schema_knows_every_key_that_the_examples_use():
    schema = FileDocuments().policy_schema()
    assert schema["required"] == ["apiVersion", "kind", "metadata", "spec"]
    kinds = schema["$defs"]
    assert isinstance(kinds, dict)
    spec = kinds["GateSpec"]["properties"]
    assert spec["platforms"]["description"] == "The platforms; at least one is blocking."
    for path in (*READY, *EXAMPLES):
        entries = read_yaml(path.read_text("utf-8")).entries
        assert entries is not None
        used = entries["spec"].item.entries
        assert used is not None
        assert set(used) <= set(spec)


def test_a_policy_says_what_is_tried_with_failing_tests():
    text = HEAD + PLATFORMS + "  flaky: {reruns: 3}\n  diagnosis: {max_tests: 7}\n"
    order = retest_options(FileDocuments().read_policy(text, "gate.yaml"))
    assert (order.reruns, order.diagnose, order.max_tests, order.max_minutes) == (3, True, 7, 15.0)
