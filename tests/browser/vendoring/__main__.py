"""`make vendor`: fetch what the lock file names, copy the named files, write their hashes.

npm checks every package against the sha512 of the lock file. No script of a package is run.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
LOCK = HERE / "package-lock.json"
DASHBOARD = ROOT / "orchestrator" / "dashboard" / "static" / "vendor"
API = ROOT / "orchestrator" / "api" / "static" / "vendor"
BROWSER_TESTS = ROOT / "tests" / "browser" / "vendor"


@dataclass(frozen=True)
class Package:
    """One package of npm: its name there, its name here, and the files that are copied."""

    name: str
    folder: str
    into: Path
    files: tuple[str, ...]


PACKAGES = (
    Package(
        "htmx.org",
        "htmx",
        DASHBOARD,
        ("LICENSE", "dist/htmx.min.js", "dist/ext/hx-csp.min.js"),
    ),
    Package(
        "uplot", "uplot", DASHBOARD, ("LICENSE", "dist/uPlot.iife.min.js", "dist/uPlot.min.css")
    ),
    Package(
        "swagger-ui-dist",
        "swagger-ui",
        API,
        (
            "LICENSE",
            "NOTICE",
            "favicon-32x32.png",
            "swagger-ui-bundle.js",
            "swagger-ui-bundle.js.LICENSE.txt",
            "swagger-ui.css",
        ),
    ),
    Package("axe-core", "axe", BROWSER_TESTS, ("LICENSE", "LICENSE-3RD-PARTY.txt", "axe.min.js")),
)


def main() -> None:
    """Copy every package's files to their place, and nothing else."""
    locked = json.loads(LOCK.read_text("utf-8"))["packages"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fetch(folder)
        for place in {package.into for package in PACKAGES}:
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(parents=True)
            entries = [
                copied(package, folder / "node_modules" / package.name, locked)
                for package in PACKAGES
                if package.into == place
            ]
            write(place / "vendor.json", {"packages": entries})


def fetch(folder: Path) -> None:
    """Let npm unpack exactly what the lock file names into a folder."""
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, folder / name)
    subprocess.run(
        ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=folder, check=True
    )


def copied(package: Package, source: Path, locked: dict[str, Any]) -> dict[str, Any]:
    """Copy a package's files, and return their description."""
    lock = locked[f"node_modules/{package.name}"]
    folder = f"{package.folder}-{lock['version']}"
    target = package.into / folder
    target.mkdir()
    files = {}
    for name in package.files:
        copy = target / Path(name).name
        shutil.copyfile(source / name, copy)
        files[f"{folder}/{copy.name}"] = hashlib.sha256(copy.read_bytes()).hexdigest()
    return {
        "name": package.name,
        "version": lock["version"],
        "license": lock["license"],
        "origin": "npm",
        "integrity": lock["integrity"],
        "folder": folder,
        "files": dict(sorted(files.items())),
    }


def write(path: Path, document: dict[str, Any]) -> None:
    """Write a document as people read it."""
    path.write_text(json.dumps(document, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
