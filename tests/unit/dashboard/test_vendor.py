"""What is vendored is what was locked: versions, integrity, licences and every byte."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests.browser.vendoring.__main__ import API, BROWSER_TESTS, DASHBOARD, LOCK, PACKAGES

PLACES = pytest.mark.parametrize(
    "place", [API, DASHBOARD, BROWSER_TESTS], ids=lambda p: p.parts[-3]
)
FREE_LICENCES = {"0BSD", "Apache-2.0", "BSD-0-Clause", "MIT", "MPL-2.0"}


def pinned(place: Path) -> list[dict]:
    return json.loads((place / "vendor.json").read_text("utf-8"))["packages"]


def locked() -> dict[str, dict]:
    return json.loads(LOCK.read_text("utf-8"))["packages"]


@PLACES
def test_every_file_is_the_one_that_was_pinned_and_none_is_missing_or_extra(place: Path) -> None:
    there = {
        path.relative_to(place).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in place.rglob("*")
        if path.is_file() and path.name != "vendor.json"
    }
    expected: dict[str, str] = {}
    for package in pinned(place):
        expected |= package["files"]
    assert there == expected


@PLACES
def test_every_package_is_the_locked_one(place: Path) -> None:
    for package in pinned(place):
        lock = locked()[f"node_modules/{package['name']}"]
        said = {key: package[key] for key in ("version", "license", "integrity")}
        assert said == {key: lock[key] for key in said}
        assert package["integrity"].startswith("sha512-")


@PLACES
def test_every_package_brings_a_licence_that_lets_us_hand_it_on(place: Path) -> None:
    for package in pinned(place):
        assert package["license"] in FREE_LICENCES
        assert f"{package['folder']}/LICENSE" in package["files"]


@PLACES
def test_what_is_here_is_what_the_list_of_packages_asks_for(place: Path) -> None:
    asked = {
        package.name: {Path(name).name for name in package.files}
        for package in PACKAGES
        if package.into == place
    }
    here = {
        package["name"]: {Path(name).name for name in package["files"]} for package in pinned(place)
    }
    assert here == asked


def test_the_lock_file_names_exact_versions_and_no_host_of_anybodys_own() -> None:
    wanted = locked()[""]
    for name, version in (wanted["dependencies"] | wanted["devDependencies"]).items():
        assert locked()[f"node_modules/{name}"]["version"] == version
    for name, entry in locked().items():
        assert not name or entry["integrity"].startswith("sha512-")
        assert entry.get("resolved", "https://registry.npmjs.org/").startswith(
            "https://registry.npmjs.org/"
        )


def test_nothing_of_the_dashboards_own_code_names_another_origin() -> None:
    own = [
        path
        for path in DASHBOARD.parent.rglob("*")
        if path.suffix in {".js", ".css"} and DASHBOARD not in path.parents
    ]
    for path in own:
        text = path.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text, path
        assert "https://" not in text, path
