"""The documentation: links lead somewhere, and what pages name exists."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from orchestrator.cli.app import whole
from orchestrator.config import Settings

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
NAMED = re.compile(r"(?<![\w/.])docs/[\w./-]*\.(?:md|py|json|svg|png)")
ELSEWHERE = (
    "tests/golden/",
    "tests/unit/files/",
    "tests/unit/result_parsers/",
    "tests/integration/",
)
"""What lies there names files of other projects."""


UNTRACKED = {"var", "build", "dist"}
SUFFIXES = {".py", ".md", ".yaml", ".yml", ".toml", ".sh", ""}


def files() -> list[str]:
    """The text files of the repository, by their paths in it."""
    tops = [
        top for top in ROOT.iterdir() if not (top.name.startswith(".") or top.name in UNTRACKED)
    ]
    found = [path for top in tops for path in ([top] if top.is_file() else top.rglob("*"))]
    return sorted(
        str(path.relative_to(ROOT))
        for path in found
        if path.is_file() and path.suffix in SUFFIXES and "vendor" not in path.parts
    )


PAGES = ["README.md", "CHANGELOG.md", "tests/README.md"] + [
    str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").rglob("*.md"))
]


@cache
def anchors(page: Path) -> set[str]:
    """The headings of a page, as addresses."""
    text = FENCE.sub("", page.read_text("utf-8"))
    found: set[str] = set()
    for heading in re.findall(r"^#+ +(.*)", text, re.MULTILINE):
        words = re.sub(r"\]\([^)]*\)", "", heading).lower()
        found.add(re.sub(r"[^\w -]", "", words).strip().replace(" ", "-"))
    return found


def commands(page: Path) -> Iterator[list[str]]:
    """The words of each `seatrial` command in a page's blocks of shell."""
    for block in re.findall(
        r"^```(?:sh|bash|console)\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL
    ):
        for line in block.replace("\\\n", " ").splitlines():
            found = re.match(r"(?:\$ |\w+=\$\()?seatrial +([^|&;)>]*)", line)
            if found:
                yield shlex.split(found[1], comments=True)


program = cache(whole)


def unknown_in(words: list[str]) -> list[str]:
    """What of a command's words the program does not know."""
    command, rest = program(), list(words)
    while rest and hasattr(command, "commands"):
        if rest[0] not in command.commands:
            return [] if rest[0].startswith("-") else [rest[0]]
        command = command.commands[rest.pop(0)]
    known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    return [w for w in rest if re.match(r"--?[a-z]", w) and w.partition("=")[0] not in known]


@pytest.mark.parametrize("name", PAGES)
def test_every_command_of_a_page_exists(name: str) -> None:
    assert [(words, bad) for words in commands(ROOT / name) if (bad := unknown_in(words))] == []


@pytest.mark.parametrize("name", PAGES)
def test_every_link_of_a_page_leads_somewhere(name: str) -> None:
    page = ROOT / name
    broken = []
    for link in LINK.findall(FENCE.sub("", page.read_text("utf-8"))):
        path, _, anchor = link.partition("#")
        target = (page.parent / path) if path else page
        if "://" in link or link.startswith("mailto:"):
            continue
        if not target.exists() or (anchor and anchor not in anchors(target.resolve())):
            broken.append(link)
    assert broken == []


def test_every_page_that_code_and_messages_name_exists() -> None:
    missing = [
        (name, path)
        for name in files()
        if not name.startswith(ELSEWHERE)
        for path in NAMED.findall((ROOT / name).read_text("utf-8"))
        if not (ROOT / path).exists()
    ]
    assert missing == []


def test_every_variable_has_a_row() -> None:
    page = (ROOT / "docs" / "reference" / "environment.md").read_text("utf-8")
    ours = {f"SEATRIAL_{name.upper()}" for name in Settings.model_fields if name != "ci"}
    assert set(re.findall(r"`(SEATRIAL_\w+)`", page)) == ours


def test_the_readme_is_short_and_has_one_picture() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(text.split()) <= 400
    assert text.count("![") == 1
    assert "None of this has met a real cloud yet" in text


def constant(node: ast.AST) -> str:
    """The text of a string, with `...` for each value that is put into it."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(constant(value) for value in values)
        case _:
            return "..."


@cache
def printed() -> str:
    """Every text in the source of the product, one a line."""

    def texts() -> Iterator[str]:
        for top in ("orchestrator", "runners"):
            for path in sorted((ROOT / top).rglob("*.py")):
                for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                    if isinstance(node, ast.Constant | ast.JoinedStr):
                        yield constant(node).replace("\n", " ")

    return "\n".join(texts())


def messages() -> list[str]:
    text = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")
    return [message for _, message in re.findall(r"^### (`+) ?(.*?) ?\1$", text, re.MULTILINE)]


@pytest.mark.parametrize("message", messages())
def test_every_message_of_the_troubleshooting_page_is_one_of_the_product(message: str) -> None:
    parts = [re.escape(part) for part in message.split("...")]
    assert re.search(r"[^\n]*?".join(parts), printed()), message


def test_the_likeliest_messages_have_a_section() -> None:
    assert len(messages()) >= 20


def test_the_key_of_own_hosts_is_made_by_the_page_s_command(tmp_path: Path) -> None:
    page = (ROOT / "docs/how-to/own-hosts.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"`([^`]*ssh-keygen[^`]*)`", page)
    for home, variables in (("var", {}), ("else where", {"SEATRIAL_HOME": "else where"})):
        words = ["bash", "-euc", command]
        subprocess.run(
            words, cwd=tmp_path, env={"PATH": os.environ["PATH"], **variables}, check=True
        )
        assert (tmp_path / home / "keys/rack").is_file()
        assert (tmp_path / home / "keys").stat().st_mode & 0o077 == 0


def test_every_attack_of_the_security_page_is_held_by_tests_that_exist() -> None:
    page = (ROOT / "docs/explanation/security.md").read_text("utf-8")
    rows = [row for row in re.findall(r"^\| .*", page, re.MULTILINE) if "| tests |" not in row]
    assert len(rows) > 40
    for row in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row.rsplit(" | ", 1)[1])
        assert named, row
        for path, name in named:
            assert f"\ndef {name}(" in (ROOT / path).read_text("utf-8"), (path, name)


_LISTED = re.compile(r"^(V-\d{4}) .*? (01\w{10})\b", re.MULTILINE)
_EXPLAINED = re.compile(r"^[A-Z_]+  \S+ (V-\d{4}) .*\n.*\nevaluated: run (01\w{10})", re.MULTILINE)


def test_a_verdict_of_the_tutorial_is_of_one_run_in_all_its_outputs() -> None:
    text = (ROOT / "docs/tutorials/nightly-gate.md").read_text(encoding="utf-8")
    listed, explained = _LISTED.findall(text), _EXPLAINED.findall(text)
    assert listed
    assert explained
    assert set(explained) <= set(listed)
