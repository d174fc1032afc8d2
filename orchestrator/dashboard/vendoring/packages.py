"""The packages that are vendored: for each, the files that are taken and where they lie."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
LOCK = HERE / "package-lock.json"
DASHBOARD = ROOT / "orchestrator" / "dashboard" / "static" / "vendor"
API = ROOT / "orchestrator" / "api" / "static" / "vendor"
BROWSER_TESTS = ROOT / "tests" / "browser" / "vendor"


@dataclass(frozen=True)
class Package:
    """One package of npm: its name there, its name here, and what is taken of it."""

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
