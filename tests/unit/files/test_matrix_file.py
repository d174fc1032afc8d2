from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from ruamel.yaml.events import Event

from orchestrator.adapters.files import document_nodes
from orchestrator.adapters.files.documents import FileDocuments
from orchestrator.domain.document_problems import InvalidDocumentError
from orchestrator.domain.matrix import Matrix
from tests.unit.domain.builders import TRAITS, manifest

DOCUMENTS = FileDocuments()
HEAD = "apiVersion: seatrial/v1\nkind: Matrix\n"
GOOD = f"""{HEAD}metadata: {{name: m}}
subject: {{name: s, version: "1.10"}}
platforms:
  - {{id: here, provider: local}}
jobs:
  - {{id: a, on: [here]}}
limits: {{max_usd: 4.50}}
"""


def refused(text: str) -> list[str]:
    with pytest.raises(InvalidDocumentError) as caught:
        DOCUMENTS.read_matrix(text, "m.yaml")
    return [
        f"{p.line}:{p.column} {'.'.join(map(str, p.path))}: {p.message}"
        for p in caught.value.problems
    ]


def changed(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


CASES = {
    "unquoted version": (
        changed('"1.10"', "1.10"),
        '4:29 subject.version: write it in quotes: "1.10" - unquoted it is the number 1.1',
    ),
    "unquoted version, block": (
        changed('{name: s, version: "1.10"}', "\n  name: s\n  version: 2"),
        '6:12 subject.version: write it in quotes: "2" - unquoted it is the number 2',
    ),
    "boolean for text": (
        changed("name: m", "name: true"),
        '3:18 metadata.name: write it in quotes: "true" - unquoted it is true',
    ),
    "nothing for text": (
        changed("name: m", "name: "),
        "3:17 metadata.name: must be text, not nothing",
    ),
    "list for text": (
        changed("name: m", "name: [m]"),
        "3:18 metadata.name: must be text, not a list",
    ),
    "unknown key": (
        changed("provider: local", "provider: local, markt: [spot]"),
        "6:33 platforms.0.markt: there is no such key; did you mean 'market'?",
    ),
    "unknown key at the top": (
        GOOD + "limit: {}\n",
        "10:1 limit: there is no such key; did you mean 'limits'?",
    ),
    "missing key": (changed(", provider: local", ""), "6:5 platforms.0.provider: is missing"),
    "missing section": (changed("subject", "# subject"), "1:1 subject: is missing"),
    "wrong word": (
        changed("provider: local", "provider: local, market: [spt]"),
        "6:42 platforms.0.market.0: 'spt' is unknown; did you mean 'spot'?",
    ),
    "word beside a list": (
        changed("[here]", "here"),
        "8:17 jobs.0.on: must be a list or 'all', not 'here'; for a list of one write [here]",
    ),
    "text for a list": (
        changed("limits:", "environments: image\nlimits:"),
        "9:15 environments: must be a list, not 'image'; for a list of one write [image]",
    ),
    "word beside a mapping": (
        changed("limits:", "payload: built-in\nlimits:"),
        "9:10 payload: must be a mapping or 'builtin', not 'built-in'",
    ),
    "mapping beside a word": (
        changed("limits:", "payload: {pth: x}\nlimits:"),
        "9:10 payload.path: is missing",
    ),
    "quoted number": (
        changed("max_usd: 4.50", 'max_parallel: "4"'),
        "9:24 limits.max_parallel: must be a whole number: write 4 without quotes",
    ),
    "fraction for a whole number": (
        changed("max_usd: 4.50", "max_parallel: 4.0"),
        "9:24 limits.max_parallel: must be a whole number, not the number 4.0",
    ),
    "boolean for a number": (
        changed("max_usd: 4.50", "max_parallel: true"),
        "9:24 limits.max_parallel: must be a whole number, not true",
    ),
    "no amount": (
        changed("4.50", "four"),
        "9:19 limits.max_usd: must be an amount such as \"4.00\", not 'four'",
    ),
    "no number": (
        changed("max_usd: 4.50", "max_minutes: .nan"),
        "9:23 limits.max_minutes: must be a number, not the number nan",
    ),
    "endless": (
        changed("max_usd: 4.50", "max_minutes: .inf"),
        "9:23 limits.max_minutes: is too large: at most 1000000000000",
    ),
    "word for a boolean": (
        changed("max_usd: 4.50", "allow_unknown_price: yes"),
        "9:31 limits.allow_unknown_price: must be true or false, not 'yes'",
    ),
    "secret from elsewhere": (
        GOOD + "secrets: {T: {from: file}}\n",
        "10:21 secrets.T.from: must be 'env', not 'file'",
    ),
    "secret with another key": (
        GOOD + "secrets: {T: {frm: env}}\n",
        "10:15 secrets.T.frm: there is no such key; did you mean 'from'?",
    ),
    "no apiVersion": (
        changed("apiVersion: seatrial/v1\n", ""),
        "1:1 apiVersion: is missing: write `apiVersion: seatrial/v1`",
    ),
    "another kind": (
        changed("kind: Matrix", "kind: Matrx"),
        "2:7 kind: 'Matrx' is unknown; did you mean 'Matrix'?",
    ),
    "duplicate key": (
        GOOD + "jobs: []\n",
        "10:1 : the key 'jobs' occurs twice; the first is in line 7",
    ),
    "duplicate key, quoted": (
        changed("{id: here,", '{id: here, "id": there,'),
        "6:16 : the key 'id' occurs twice; the first is in line 6",
    ),
    "merge key": (GOOD + "<<: {}\n", "10:1 : `<<` is not read: write the keys out"),
    "key that is a list": (GOOD + "? [a]\n: b\n", "10:3 : a key must be a single word or text"),
    "tag": (
        changed("name: m", "name: !!str m"),
        "3:18 : tags (words that begin with !) are not read",
    ),
    "python tag": (
        changed("{name: m}", "!!python/object:os.system {name: m}"),
        "3:11 : tags (words that begin with !) are not read",
    ),
    "directive": (
        "%YAML 1.1\n---\n" + GOOD,
        "2:1 : directives (lines that begin with %) are not read",
    ),
    "second document": (
        GOOD + "---\na: 1\n",
        "10:1 : a file holds one document; a second one begins here",
    ),
    "tab": (
        changed("  - {id: here", "\t- {id: here"),
        "6:1 : a tab cannot indent YAML: use spaces",
    ),
    "unclosed": (GOOD + "a: [1\n", "11:1 : this is not YAML: "),
    "self-reference": (GOOD + "a: &x [*x]\n", "10:8 : *x names nothing that is complete above it"),
    "empty": ("", "1:1 : it is empty"),
    "only a comment": ("# nothing\n", "1:1 : it is empty"),
    "a word": ("matrix", "1:1 : must be a mapping, not 'matrix'"),
    "a list": ("[]", "1:1 : must be a mapping, not a list"),
    "deep": (f"a: {'[' * 40}{']' * 40}", "1:35 : it is nested deeper than 32 levels"),
    "half a character": ('{"a": "\\ud800"}', "1:7 : an unpaired surrogate"),
    "NUL": (changed("name: m", 'name: "\\0"'), "3:18 metadata.name: holds a character that cannot"),
}


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES.keys())
def test_a_bad_matrix_is_refused_at_its_place(text: str, expected: str) -> None:
    problems = refused(text)
    assert any(problem.startswith(expected) for problem in problems), problems
    for problem in problems:
        for jargon in ("Input should", "type=", "literal", "pydantic", "NoneType", "dict", "tuple"):
            assert jargon not in problem


def test_all_problems_are_told_at_once_in_order() -> None:
    text = changed('"1.10"', "1.10").replace("[here]", "here").replace("name: m", "nam: m")
    places = [problem.split(" ")[0] for problem in refused(text)]
    assert places == ["3:11", "3:12", "4:29", "8:17"]


def test_a_good_matrix_is_read() -> None:
    made = DOCUMENTS.read_matrix(GOOD, "m.yaml")
    assert made.subject.version == "1.10"
    assert made.jobs[0].on == ("here",)
    assert made.limits.max_usd == Decimal("4.5")


def test_words_that_older_yaml_took_for_booleans_are_words() -> None:
    made = DOCUMENTS.read_matrix(changed("id: a, on: [here]", "id: no, on: all"), "m.yaml")
    assert (made.jobs[0].id, made.jobs[0].on) == ("no", "all")
    assert DOCUMENTS.read_matrix(changed("name: m", "name: 2026-01-01"), "m").metadata.name == (
        "2026-01-01"
    )


def test_aliases_are_read() -> None:
    text = changed("- {id: here, provider: local}", "- &p {id: here, provider: local}\n  - *p")
    assert len(DOCUMENTS.read_matrix(text, "m.yaml").platforms) == 2


def test_an_alias_bomb_is_refused_at_once() -> None:
    rows = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    (problem,) = refused("\n".join(rows))
    assert "holds more than 50000 values" in problem


def test_a_huge_file_is_refused() -> None:
    assert refused("# " + "x" * 1024 * 1024) == ["None:None : it is larger than 1048576 bytes"]


AS_JSON = {
    "apiVersion": "seatrial/v1",
    "kind": "Matrix",
    "metadata": {"name": "\U0001f600"},
    "subject": {"name": "s", "version": "1.10"},
    "platforms": [{"id": "here", "provider": "local", "accelerator": None}],
    "jobs": [{"id": "a"}],
}


@pytest.mark.parametrize(
    ("indent", "separators", "ascii_only"),
    [(None, (",", ":"), True), (2, (", ", ": "), False), ("\t", (",", ":"), False)],
)
def test_json_is_read_as_it_is(
    indent: object, separators: tuple[str, str], ascii_only: bool
) -> None:
    text = json.dumps(AS_JSON, indent=indent, separators=separators, ensure_ascii=ascii_only)  # type: ignore[arg-type]
    made = DOCUMENTS.read_matrix(text, "m.json")
    assert made == DOCUMENTS.read_matrix(AS_JSON, "m")
    assert made.metadata.name == "\U0001f600"


def test_json_problems_have_their_place() -> None:
    text = json.dumps({**AS_JSON, "subject": {"name": "s", "version": 1.1}}, indent="\t")
    assert refused(text) == [
        '9:14 subject.version: write it in quotes: "1.1" - unquoted it is the number 1.1'
    ]


def test_a_parsed_document_has_no_places() -> None:
    with pytest.raises(InvalidDocumentError) as caught:
        DOCUMENTS.read_matrix({**AS_JSON, "subject": {"name": "s", "version": 1.1}}, "request")
    assert str(caught.value) == (
        'request: subject.version: write it in quotes: "1.1" - unquoted it is the number 1.1'
    )


RULES = {
    "unknown job": (changed("{id: a,", "{id: aa,"),
        "8:10 jobs.0.id: the payload has no job 'aa'; did you mean 'a'?"),
    "rented without a limit": (
        changed("provider: local", "provider: aws").replace(
            "limits: {max_usd: 4.50}", "limits: {}"
        ),
        "9:1 limits: max_usd is required, because here costs money",
    ),
    "unpinned baseline": (GOOD + 'baseline: {package: "s>=1"}\n',
        "10:21 baseline.package: 's>=1' must be pinned, as in 'name==1.2'"),
    "no requirement": (GOOD + 'baseline: {package: "s=="}\n',
        "10:21 baseline.package: 's==' is no requirement such as 'name>=1.2'"),
    "another package": (changed('"1.10"}', '"1.10", package: "t==1.10"}'),
        "4:46 subject.package: names 't', but the subject is 's'"),
    "another version": (changed('"1.10"}', '"1.10", package: "s==1.1"}'),
        "4:46 subject.package: pins 1.1, but the subject's version is 1.10"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), RULES.values(), ids=RULES.keys())
def test_an_impossible_matrix_is_refused_at_its_place(text: str, expected: str) -> None:
    with pytest.raises(InvalidDocumentError) as caught:
        DOCUMENTS.check_matrix(text, "m.yaml", manifest=manifest(), providers=TRAITS)
    found = [
        f"{p.line}:{p.column} {'.'.join(map(str, p.path))}: {p.message}"
        for p in caught.value.problems
    ]
    assert any(problem.startswith(expected) for problem in found), found


def test_errors_of_the_form_and_of_the_values_are_told_together() -> None:
    """And nothing that is only wrong because of what stands in the place of a wrong value."""
    text = f"""{HEAD}metadata: {{}}
subject: {{name: s, version: 1.10}}
limits: {{max_usd: lots, cell_s: 3}}
platforms:
  - {{id: here, provider: locall}}
  - {{id: b c, provider: local, locatons: [x], locations: 3}}
  - {{provider: local}}
jobs:
  - {{id: aa, on: [nowhere]}}
  - {{id: 5, on: all}}
"""
    with pytest.raises(InvalidDocumentError) as caught:
        DOCUMENTS.check_matrix(text, "m.yaml", manifest=manifest(), providers=TRAITS)
    assert [f"{p.line} {'.'.join(map(str, p.path))}" for p in caught.value.problems] == [
        "3 metadata.name",
        "4 subject.version",
        "5 limits.max_usd",
        "5 limits.cell_s",
        "7 platforms.0",
        "7 platforms.0.provider",
        "8 platforms.1.id",
        "8 platforms.1.locatons",
        "8 platforms.1.locations",
        "9 platforms.2.id",
        "11 jobs.0.id",
        "11 jobs.0.on.0",
        "12 jobs.1.id",
    ]
    said = [p.message for p in caught.value.problems]
    assert said[4] == "no job is sent to platform 'here'"
    assert said[5] == "there is no provider 'locall'; did you mean 'local'?"
    assert said[10] == "the payload has no job 'aa'; did you mean 'a'?"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            GOOD.replace("id: a,", "id: aa,") + "payload: {pth: x}\n",
            ["payload.path", "payload.pth"],
        ),
        (
            changed("id: a,", "id: aa,").replace("limits:", "limit:"),
            ["jobs.0.id", "limit", "platforms.0"],
        ),
        (
            changed("id: a,", "id: aa,").replace("{id: here, provider: local}", "here"),
            ["platforms.0"],
        ),
    ],
    ids=["another payload", "an unknown key hides nothing", "nothing in its place"],
)
def test_only_what_can_be_checked_is_told(text: str, told: list[str]) -> None:
    with pytest.raises(InvalidDocumentError) as caught:
        DOCUMENTS.check_matrix(text, "m.yaml", manifest=manifest(), providers=TRAITS)
    paths = [".".join(map(str, p.path)) for p in caught.value.problems]
    assert sorted(paths) == told


def test_a_possible_matrix_passes() -> None:
    made = DOCUMENTS.check_matrix(GOOD, "m.yaml", manifest=manifest(), providers=TRAITS)
    assert made == DOCUMENTS.read_matrix(GOOD, "m.yaml")


VALUES = st.sampled_from(
    [None, True, 0, 1, 4.5, "", "all", "x", "4.00", "spot", [], ["x"], ["spot"], {}, {"name": "x"}]
)
PATHS = [
    ("metadata",), ("metadata", "name"), ("subject", "version"), ("subject", "git"), ("platforms",),
    ("platforms", 0, "instance_type"), ("platforms", 0, "market"), ("platforms", 0, "locations"),
    ("platforms", 0, "accelerator"), ("platforms", 0, "image"), ("platforms", 0, "disk_gb"),
    ("platforms", 0, "optional"), ("jobs", 0, "on"), ("payload",), ("environments",), ("limits",),
    ("limits", "max_usd"), ("limits", "max_minutes"), ("limits", "max_parallel"), ("secrets",),
]  # fmt: skip
SCHEMA = TypeAdapter(Matrix)


@given(st.sampled_from(PATHS), VALUES)
def test_our_reader_and_the_schema_agree(path: tuple[str | int, ...], value: object) -> None:
    document = json.loads(json.dumps({**AS_JSON, "limits": {}}))
    target = document
    for part in path[:-1]:
        target = target[part]
    target[path[-1]] = value
    body = {key: each for key, each in document.items() if key not in ("apiVersion", "kind")}
    try:
        expected = SCHEMA.validate_json(json.dumps(body), strict=True)
    except ValidationError:
        expected = None
    try:
        got = DOCUMENTS.read_matrix(document, "m")
    except InvalidDocumentError:
        got = None
    assert got == expected


def test_the_schema_names_what_a_file_must_hold() -> None:
    schema = DOCUMENTS.matrix_schema()
    assert schema["required"] == ["apiVersion", "kind", "metadata", "subject", "platforms", "jobs"]
    properties = schema["properties"]
    assert isinstance(properties, dict)
    assert properties["kind"] == {"const": "Matrix"}
    assert properties["subject"]["description"] == "The validated subject."
    assert schema["additionalProperties"] is False


def test_the_ready_made_matrices_are_read() -> None:
    folder = Path(__file__).parents[3] / "matrices"
    names = {
        path.name: DOCUMENTS.read_matrix(path.read_text(), path.name) for path in folder.iterdir()
    }
    local = names["local.yaml"]
    assert [job.id for job in local.jobs] == ["moe", "moe-demo", "moe-throughput", "batch-sweep"]
    assert [platform.provider for platform in local.platforms] == ["local"]


def test_the_text_of_a_launch_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its plan and the launch itself read it twice each."""
    parsed = []

    def counted(text: str) -> Iterator[Event]:
        parsed.append(text)
        return events(text)

    events = document_nodes._events
    monkeypatch.setattr(document_nodes, "_events", counted)
    document_nodes._parsed.cache_clear()
    text = changed("name: s", "name: once")
    for _ in range(4):
        DOCUMENTS.read_matrix(text, "m.yaml")
        DOCUMENTS.check_matrix(text, "m.yaml", manifest=manifest(), providers=TRAITS)
    assert parsed == [text]
