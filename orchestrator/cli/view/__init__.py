"""Rendering on a terminal: pure functions of records."""
