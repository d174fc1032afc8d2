"""The planted breakages themselves: each can be planted, and none is there twice."""

from __future__ import annotations

import ast

from tests.mutants.__main__ import PAYLOAD, load


def test_every_mutant_can_be_planted_and_is_python():
    mutants = load()
    assert len(mutants) >= 60
    assert [trouble for mutant in mutants if (trouble := mutant.trouble())] == []
    for mutant in mutants:
        text = (PAYLOAD / mutant.file).read_text("utf-8")
        ast.parse(text.replace(mutant.old, mutant.new), mutant.id)
        for suite in mutant.suites:
            assert (PAYLOAD / suite.split("::")[0]).is_file(), mutant.id


def test_no_mutant_is_there_twice():
    ids = [mutant.id for mutant in load()]
    assert len(ids) == len(set(ids))
