from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.adapters.files.document_nodes import ConfigNode, DocumentSyntaxError, read_toml
from orchestrator.adapters.files.documents import FileDocuments
from orchestrator.domain.document_problems import InvalidDocumentError

DOCUMENTS = FileDocuments()
GOOD = """schema = 1
name = "p"
version = "1.10"
[python]
requires = ["torch>=2.7"]
[env.image]
pip = [
  "pytest>=8",  # a comment, with ] and "quotes"
  'numpy',
]
variables = {A = "1", "B.C" = "2"}
[[job]]
id = "a"
kind = "demo"
command = ["x"]
[[job]]
id = "b"
kind = "suite"
pytest = ["t"]
env.OMP = "2"
"""


def changed(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


CASES = {
    "unquoted version": (changed('"1.10"', "1.10 # one"),
        '3:11 version: write it in quotes: "1.10" - unquoted it is the number 1.1'),
    "date": (changed('"1.10"', "2026-01-01"), "3:11 version: must be text, not 2026-01-01"),
    "unknown key": (changed("schema", "shema"), "1:1 shema: there is no such key; did you mean"),
    "unknown key of a job": (changed('id = "b"', 'id = "b"\n  titel = "B"'),
        "18:3 job.1.titel: there is no such key; did you mean 'title'?"),
    "unknown kind": (
        changed('"suite"', '"suit"'), "18:8 job.1.kind: 'suit' is unknown; did you mean 'suite'?",
    ),
    "missing id": (changed('id = "b"\n', ""), "16:1 job.1.id: is missing"),
    "missing name": (changed('name = "p"\n', ""), "1:1 name: is missing"),
    "newer schema": (
        changed("schema = 1", "schema = 2"), "1:10 schema: must be 1, not the number 2",
    ),
    "number in a list": (changed("'numpy'", "5"), '9:3 env.image.pip.1: write it in quotes: "5"'),
    "number in an inline table": (changed('"B.C" = "2"', '"B.C" = 2'),
        '11:31 env.image.variables.B.C: write it in quotes: "2"'),
    "dotted key": (
        changed('env.OMP = "2"', "env.OMP = 2"), "20:11 job.1.env.OMP: write it in quotes",
    ),
    "list for a table": (
        changed("[env.image]\n", "[env.image.x]\n"), "6:1 env.image.x: there is no",
    ),
    "no requirement": (changed("'numpy'", "'=numpy'"),
        "9:3 env.image.pip.1: '=numpy' is no requirement such as 'name>=1.2'"),
    "a local requirement": (changed("'numpy'", "'numpy @ file:///etc/x.whl'"),
        "9:3 env.image.pip.1: 'numpy @ file:///etc/x.whl' must name a wheel at an https:"),
    "a requirement with credentials": (
        changed("'numpy'", "'numpy @ http://bob:hush@host/x.whl'"),
        "9:3 env.image.pip.1: 'numpy @ http://host/x.whl' must name a wheel at an https:"),
    "local links": (changed("variables =", 'find_links = ["/etc"]\nvariables ='),
        "11:15 env.image.find_links.0: '/etc' must be an https:// address"),
    "links that are no address": (
        changed("variables =", 'find_links = ["https://[x/links"]\nvariables ='),
        "11:15 env.image.find_links.0: 'https://[x/links' is no valid address: Invalid IPv6 URL"),
    "a requirement at no address": (changed("'numpy'", "'numpy @ https://[x/numpy-1.whl'"),
        "9:3 env.image.pip.1: 'numpy @ https://[x/numpy-1.whl' names no valid address: Invalid"),
    "job twice": (changed('id = "b"', 'id = "a"'), "17:6 job.1.id: 'a' is the id of 2 jobs"),
    "two ways to run": (changed('pytest = ["t"]', 'pytest = ["t"]\ncommand = ["x"]'),
        "16:1 job.1: job 'b' needs either `pytest` or `command`"),
    "two images": (GOOD + "[setup]\npip = []\n", "21:1 setup: [setup] is the short form"),
    "no jobs": ('name = "p"\nversion = "1"\n', "1:1 job: a payload needs at least one [[job]]"),
    "key twice": (changed("schema = 1", 'name = "q"'), "2:11 : this is not TOML: Cannot overwrite"),
    "no value": ("name = \n", "1:8 : this is not TOML: Invalid value"),
    "unclosed": ('name = "p', "1:10 : this is not TOML: "),
    "deep": ("a = " + "[" * 3000, "None:None : it is nested deeper than 32 levels"),
    "deep, but closed": ("a = " + "[" * 40 + "]" * 40, "1:1 : it is nested deeper than 32 levels"),
    "NUL": (changed('"p"', '"\\u0000"'), "2:8 name: holds a character that cannot be stored"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES.keys())
def test_a_bad_manifest_is_refused_at_its_place(text: str, expected: str) -> None:
    with pytest.raises(InvalidDocumentError) as caught:
        DOCUMENTS.read_manifest(text, "payload.toml")
    found = [
        f"{p.line}:{p.column} {'.'.join(map(str, p.path))}: {p.message}"
        for p in caught.value.problems
    ]
    assert any(problem.startswith(expected) for problem in found), found


def test_a_good_manifest_is_read() -> None:
    made = DOCUMENTS.read_manifest(GOOD, "payload.toml")
    assert made.env["image"].variables == {"A": "1", "B.C": "2"}
    assert made.env["image"].pip == ("pytest>=8", "numpy")
    assert [job.id for job in made.job] == ["a", "b"]
    assert made.job[1].env == {"OMP": "2"}


def test_windows_line_ends_and_a_byte_order_mark_do_no_harm() -> None:
    text = "\ufeff" + GOOD.replace("\n", "\r\n")
    assert DOCUMENTS.read_manifest(text, "p") == DOCUMENTS.read_manifest(GOOD, "p")


def plain(item: ConfigNode) -> object:
    if item.entries is not None:
        return {key: plain(entry.item) for key, entry in item.entries.items()}
    return [plain(each) for each in item.elements] if item.elements is not None else item.value


TRICKY = '''
a.b."c.d" = """ x " ] # [y]
"" """
'e' = \'\'\'it's\'\'\'\'
f = { g = [1, [2, {h = "}"}]], i.j = 07:32:00 }   # trailing
[[k]]
[[k.l]]
m = 1979-05-27 07:32:00
[[k.l]]
m = +1_000
[ n . "o" ]
p = [ # nothing

]
[k2]
'''


def places(item: ConfigNode, path: str = "") -> dict[str, tuple[int, int]]:
    found = {path: (item.at.line, item.at.column)} if item.at else {}
    for key, entry in (item.entries or {}).items():
        found |= places(entry.item, f"{path}/{key}")
    for number, each in enumerate(item.elements or ()):
        found |= places(each, f"{path}/{number}")
    return found


def test_the_scan_finds_every_value_of_tricky_toml() -> None:
    item = read_toml(TRICKY)
    assert plain(item) == tomllib.loads(TRICKY)
    found = places(item)
    assert found["/a/b/c.d"] == (2, 13)
    assert found["/e"] == (4, 7)
    assert found["/f/g/1/1/h"] == (5, 24)
    assert found["/f/i/j"] == (5, 38)
    assert found["/k/0/l/0/m"] == (8, 5)
    assert found["/k/0/l/1"] == (9, 1)
    assert found["/k/0/l/1/m"] == (10, 5)
    assert found["/n/o/p"] == (12, 5)
    assert found["/k2"] == (15, 1)


PIECES = ["a", "b.c", '"d"', "=", " ", "\n", "[", "]", "[[", "]]", "{", "}", ",", '"x"', "'y'"]
PIECES += ["1", "# z\n", '"""', "'''", ".", "true"]


@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
def test_whatever_the_parser_takes_the_scan_takes(text: str) -> None:
    try:
        expected = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        with pytest.raises(DocumentSyntaxError):
            read_toml(text)
        return
    assert plain(read_toml(text)) == expected


def test_the_built_in_payload_is_a_good_one() -> None:
    path = Path(__file__).parents[3] / "payload" / "payload.toml"
    made = DOCUMENTS.read_manifest(path.read_text(), "payload.toml")
    assert {"moe", "moe-demo", "moe-throughput", "batch-sweep"} <= {job.id for job in made.job}
