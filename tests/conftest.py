"""Fixtures that every kind of test may take."""

from __future__ import annotations

pytest_plugins = ["tests.postgres", "tests.databases"]
