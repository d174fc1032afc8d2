"""Dialects: the result formats of other programs."""
