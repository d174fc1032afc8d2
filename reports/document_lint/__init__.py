"""Lint of foreign reports: parsed as documents, and checked against their own figures."""
