"""Fixtures that every kind of test may take, and the order and parts of a run."""

from __future__ import annotations

from hypothesis import settings

pytest_plugins = ["tests.ladder", "tests.postgres", "tests.databases"]

# The same examples in every run, however slow the machine; `--hypothesis-profile=default` searches.
settings.load_profile("ci")
