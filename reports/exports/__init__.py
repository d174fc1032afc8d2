"""Exports of results in formats of other programs."""
