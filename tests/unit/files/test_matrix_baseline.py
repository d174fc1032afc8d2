"""The baseline of a matrix: what makes none, said at its place."""

from __future__ import annotations

import pytest

from orchestrator.domain.document_problems import InvalidDocumentError
from tests.unit.domain.builders import TRAITS, manifest
from tests.unit.files.test_matrix_file import DOCUMENTS, GOOD, changed

RULES = {
    "another package as baseline": (
        changed('"1.10"}', '"1.10", package: "s==1.10"}') + 'baseline: {package: "t==1.9"}\n',
        "10:21 baseline.package: names 't', but the subject is 's'",
    ),
    "baseline of two sources": (GOOD + 'baseline: {package: "s==1", wheel: "*.whl"}\n',
        "10:1 baseline: give one of package, wheel, git, payload, not package and wheel"),
    "baseline of no source": (GOOD + "baseline: {min_pairs: 20}\n",
        "10:1 baseline: give one of package, wheel, git, payload"),
    "package beside a payload that is the subject": (GOOD + 'baseline: {package: "s==1"}\n',
        "10:21 baseline.package: the payload itself is the subject: name an earlier one, "),
    "payload beside a subject that is installed": (
        changed('"1.10"}', '"1.10", wheel: "*.whl"}') + "baseline: {payload: {path: p}}\n",
        "10:12 baseline.payload: the subject is installed from its wheel: so must its baseline",
    ),
    "precision": (GOOD + 'baseline: {payload: {path: p}, precision: "0.015"}\n',
        "10:43 baseline.precision: '0.015' is no percentage such as '1.5%'"),
    "no precision": (GOOD + 'baseline: {payload: {path: p}, precision: "0%"}\n',
        "10:43 baseline.precision: '0%' is no percentage such as '1.5%'"),
    "too few pairs": (GOOD + "baseline: {payload: {path: p}, min_pairs: 3}\n",
        "10:43 baseline.min_pairs: must be at least 4"),
    "fewer pairs than there must be": (GOOD + "baseline: {payload: {path: p}, max_pairs: 9}\n",
        "10:43 baseline.max_pairs: must not be less than min_pairs, which is 10"),
    "too many pairs": (GOOD + "baseline: {payload: {path: p}, max_pairs: 1001}\n",
        "10:43 baseline.max_pairs: must not be more than 1000"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), RULES.values(), ids=RULES.keys())
def test_an_impossible_baseline_is_refused_at_its_place(text: str, expected: str) -> None:
    with pytest.raises(InvalidDocumentError) as caught:
        DOCUMENTS.check_matrix(text, "m.yaml", manifest=manifest(), providers=TRAITS)
    found = [
        f"{p.line}:{p.column} {'.'.join(map(str, p.path))}: {p.message}"
        for p in caught.value.problems
    ]
    assert any(problem.startswith(expected) for problem in found), found


@pytest.mark.parametrize("said", ["1.5%", "1.5 %", "2%", "0.25%"])
def test_a_precision_is_a_percentage(said: str) -> None:
    text = GOOD + f'baseline: {{payload: {{path: p}}, precision: "{said}"}}\n'
    made = DOCUMENTS.check_matrix(text, "m.yaml", manifest=manifest(), providers=TRAITS)
    assert made.baseline is not None
    assert made.baseline.half_width == pytest.approx(float(said.strip("% ")) / 100)
