"""Test suites."""
