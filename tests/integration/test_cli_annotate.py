"""note: what a person writes for the reports, from a file or from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli import in_process
from tests.unit.cli.fake_controller import Answer, FakeController, Request
from tests.unit.cli.in_process import ID, SHOWN, Cli

cli, controller = in_process.cli, in_process.controller  # the fixtures
HEAD = "apiVersion: seatrial/v1\nkind: Annotations\nauthor: R. Eader\nannotations:\n"


@pytest.fixture
def kept(controller: FakeController) -> FakeController:
    def keep(request: Request) -> Answer:
        doubt = {"level": "error", "message": "51 of 53 passed"}
        at = {"at": "2026-01-18T00:00:00Z"}
        given = ({"text": "", **one} for one in request.json["annotations"])
        items = [one | at | {"doubts": [doubt]} for one in given]
        return Answer.of({"items": items}, 201)

    controller.answers["POST", f"{SHOWN}/annotations"] = keep
    return controller


def sent(controller: FakeController) -> list[dict[str, object]]:
    [request] = controller.sent("POST", f"{SHOWN}/annotations")
    annotations: list[dict[str, object]] = request.json["annotations"]
    return annotations


def file(cli: Cli, text: str) -> str:
    path: Path = cli.folder / "notes.yaml"
    path.write_text(HEAD + text)
    return str(path)


def test_a_file_is_read_here_and_contradictions_are_told(cli: Cli, kept: FakeController) -> None:
    path = file(
        cli,
        "  - {kind: conclusion, text: All tests pass., cell: local-cpu}\n"
        "  - {kind: fix, title: Mended, files: [a.py], at: 2026-01-18}\n",
    )
    assert cli("annotate", ID, path) == 0
    first, second = sent(kept)
    assert (first["text"], first["cell"], first["author"]) == (
        "All tests pass.",
        "local-cpu",
        "R. Eader",
    )
    assert (second["at"], second["files"]) == ("2026-01-18", ["a.py"])
    assert "conclusion 'All tests pass.': CONTRADICTED: 51 of 53 passed" in cli.err
    assert "2 annotations of run" in cli.err
    assert cli.out == ""


def test_one_annotation_needs_no_file(cli: Cli, kept: FakeController) -> None:
    words = ("--kind", "fix", "--title", "Mended", "--text", "*So*", "--author", "R. Eader")
    assert cli("annotate", ID, *words, "--json") == 0
    assert sent(kept) == [
        {"kind": "fix", "title": "Mended", "text": "*So*", "author": "R. Eader"},
    ]
    (kept_one,) = json.loads(cli.out)
    assert kept_one["title"] == "Mended"


def test_what_is_wrong_in_a_file_is_said_with_its_line(cli: Cli, kept: FakeController) -> None:
    path = file(cli, "  - {kind: note, text: a, cell: gcp-l5}\n")
    assert cli("annotate", ID, path) == 2
    assert "notes.yaml: line 5, column 33: annotations.0.cell" in cli.err
    assert "did you mean 'gcp-l4'?" in cli.err
    assert kept.sent("POST", f"{SHOWN}/annotations") == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "name a file of annotations, or say --kind"),
        (("FILE", "--kind", "fix"), "--kind is for a single annotation"),
        (("nowhere.yaml",), "nowhere.yaml: No such file"),
    ],
)
def test_what_makes_no_sense_is_a_sentence(
    cli: Cli, kept: FakeController, words: tuple[str, ...], said: str
) -> None:
    path = file(cli, "  - {kind: note, text: a}\n")
    assert cli("annotate", ID, *[path if word == "FILE" else word for word in words]) == 2
    assert said in cli.err
    assert kept.sent("POST", f"{SHOWN}/annotations") == []


def test_a_refusal_of_the_controller_names_the_annotation(
    cli: Cli, controller: FakeController
) -> None:
    fault = {"pointer": "/annotations/0/author", "detail": "is missing: say who wrote it"}
    refusal = Answer.problem(422, "the annotations: ...", errors=[fault])
    controller.answers["POST", f"{SHOWN}/annotations"] = refusal
    assert cli("annotate", ID, "--kind", "note", "--text", "a") == 2
    assert "annotations.0.author: is missing" in cli.err
