"""What the reports' tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        default=False,
        help="write what is rendered into tests/golden/reports instead of comparing",
    )


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden", default=False))


@pytest.fixture(scope="session")
def templates() -> Path:
    return ROOT / "templates" / "reports"


@pytest.fixture(scope="session")
def golden() -> Path:
    return ROOT / "tests" / "golden" / "reports"
