"""Dialects: the ways in which other programs write results down."""
