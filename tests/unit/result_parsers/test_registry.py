from __future__ import annotations

import sys

import pytest

from orchestrator.adapters.result_parsers.registry import GROUP, DialectError, FileDialects
from orchestrator.domain.parsed_results import Provenance
from tests.unit.result_parsers.pytest_logs import GOLDEN, artifact, written


class Sure:
    """A dialect of a test."""

    version = 1
    provenance = Provenance.PARSED_TEXT

    def __init__(self, name, confidence):
        self.name = name
        self._confidence = confidence

    def match(self, artifact):
        return self._confidence

    def read(self, artifact):
        yield from ()


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        ([("a", 0.2), ("b", 0.9)], "b"),
        ([("b", 0.5), ("a", 0.5)], "a"),
        ([("a", 0.0)], None),
        ([], None),
    ],
)
def test_the_surest_is_chosen_and_of_equals_the_first_by_name(tmp_path, offered, chosen):
    best = FileDialects([Sure(*one) for one in offered]).best(written(tmp_path, "x"))
    assert (best[0].name if best else None) == chosen


def test_every_dialect_has_a_name_of_its_own():
    names = FileDialects().names
    assert len(set(names)) == len(names)
    assert {"pytest-text", "reportlog"} <= set(names)


@pytest.mark.parametrize(
    ("file", "dialect"),
    [
        ("nvidia_backend.txt", "pytest-text"),
        ("moe_tests.txt", "pytest-text"),
        ("fp8_tests.txt", "pytest-text"),
        ("fp8_demo.txt", "demo-marks"),
        ("flex_attention_demo.txt", "demo-marks"),
        ("moe_demo.txt", "demo-headings"),
        ("moe_benchmark.txt", "metric-lines"),
    ],
)
def test_the_real_logs_find_their_dialect(file, dialect):
    best = FileDialects().best(artifact(GOLDEN / file))
    assert best is not None
    assert best[0].name == dialect


def test_nobody_knows_a_picture(tmp_path):
    raw = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40
    assert FileDialects().best(written(tmp_path, raw, "plot.png")) is None


PLUG_IN = """
class Strange:
    version = 1
    provenance = "parsed-text"
    name = {name!r}
    def match(self, artifact): return 1.0 if artifact.head.startswith(b"strange") else 0.0
    def read(self, artifact): yield from ()
"""


def install(folder, monkeypatch, *, name, target="strange_dialect:Strange"):
    """A distribution with a dialect."""
    (folder / "strange_dialect.py").write_text(PLUG_IN.format(name=name))
    facts = folder / "strange_dialect-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: strange-dialect\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(f"[{GROUP}]\nstrange = {target}\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "strange_dialect", raising=False)


def test_a_dialect_of_another_distribution(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, name="strange")
    best = FileDialects().best(written(tmp_path, "strange words"))
    assert best is not None
    assert (best[0].name, best[1]) == ("strange", 1.0)


@pytest.mark.parametrize(
    ("name", "target", "words"),
    [
        ("pytest-text", "strange_dialect:Strange", "a name that is taken"),
        ("strange", "strange_dialect:Missing", "cannot be loaded"),
        ("strange", "no_such_module:Strange", "cannot be loaded"),
    ],
)
def test_a_dialect_that_cannot_be_used_is_named(tmp_path, monkeypatch, name, target, words):
    install(tmp_path, monkeypatch, name=name, target=target)
    with pytest.raises(DialectError, match=words):
        FileDialects()
