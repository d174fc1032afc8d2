"""The page that shows the API: everything from here, nothing inline."""

from __future__ import annotations

import re

from orchestrator.api.openapi import POLICY, STATIC


def test_the_page_loads_only_files_that_are_here() -> None:
    page = (STATIC / "docs.html").read_text()
    loaded = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert len(loaded) == 5
    for address in loaded:
        if address != "openapi.json":
            assert (STATIC / address.removeprefix("docs/static/")).is_file(), address


def test_the_page_has_nothing_inline_that_its_policy_would_block() -> None:
    page = (STATIC / "docs.html").read_text()
    assert re.findall(r"<script(?![^>]*\bsrc=)", page) == []
    assert "<style" not in page
    assert re.findall(r"\son\w+=|\sstyle=|javascript:", page) == []


def test_the_policy_allows_no_other_origin_and_no_inline_code() -> None:
    assert POLICY.startswith("default-src 'none'")
    assert "unsafe" not in POLICY
    assert "http" not in POLICY
    assert "*" not in POLICY


def test_the_first_script_fetches_from_here_only() -> None:
    script = (STATIC / "docs.js").read_text()
    assert 'url: "openapi.json"' in script
    assert "validatorUrl: null" in script
    assert "http" not in script.replace("HTTPBearer", "")
