from __future__ import annotations

from orchestrator.domain.document_problems import (
    InvalidDocumentError,
    Problem,
    nearest,
    nearest_file,
)


def test_a_problem_says_where_it_is() -> None:
    assert str(Problem(("a", 0, "b"), "no", 3, 7)) == "line 3, column 7: a.0.b: no"
    assert str(Problem((), "no")) == "document: no"


def test_the_error_names_the_file_in_every_line() -> None:
    error = InvalidDocumentError("m.yaml", [Problem(("a",), "x"), Problem(("b",), "y", 1, 2)])
    assert str(error) == "m.yaml: a: x\nm.yaml: line 1, column 2: b: y"


def test_the_nearest_name_is_offered_or_all_of_them() -> None:
    assert nearest("moee", ["moe", "demo"]) == "; did you mean 'moe'?"
    assert nearest("G5.xlarge", ["g5.xlarge", "r5.xlarge"]) == "; did you mean 'g5.xlarge'?"
    assert nearest("zzz", ["moe", "demo"]) == "; valid: demo, moe"
    assert nearest("zzz", []) == ""


def test_a_suffix_that_files_share_makes_them_no_more_alike() -> None:
    files = ["gate.yaml", "seatrial.yaml", "notes.json"]
    assert nearest_file("seatrail.yaml", files) == "; did you mean 'seatrial.yaml'?"
    assert nearest_file("seatrial.yml", files) == "; did you mean 'seatrial.yaml'?"
    assert nearest_file("nightly.yaml", ["a.yaml", "b.yaml"]) == "; its folder has: a.yaml, b.yaml"
    assert nearest_file("nightly.yaml", []) == ""
