"""What may stand in a document that is kept and shown."""

from __future__ import annotations

import pytest

from orchestrator.domain.commit import branch_fault, url_fault


@pytest.mark.parametrize(
    "url",
    [
        "", "https://example.org/a/b.git", "ssh://git@example.org/a.git", "git@example.org:a/b.git",
        "/srv/git/a.git", "../a",
    ],
)  # fmt: skip
def test_addresses_without_a_secret(url):
    assert url_fault(url) == ""


@pytest.mark.parametrize(
    "url",
    [
        "https://token@example.org/a.git",
        "https://me:hunter2@example.org/a.git",
        "ssh://git:hunter2@example.org/a.git",
        "http://[::1/a.git",
    ],
)
def test_addresses_that_are_refused_do_not_stand_in_the_refusal(url):
    assert url_fault(url)
    assert "hunter2" not in url_fault(url)


@pytest.mark.parametrize("branch", ["", "main", "release/0.4", "a-b_c.d"])
def test_branches(branch):
    assert branch_fault(branch) == ""


@pytest.mark.parametrize("branch", ["*", "re*", "-x", "a b", "a\nb", "a:b", "a~1", "a[b]", "a\\b"])
def test_what_is_no_branch(branch):
    assert "cannot be the name of a branch" in branch_fault(branch)
