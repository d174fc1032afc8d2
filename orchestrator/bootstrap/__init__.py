"""Composition root: the only package that names concrete classes."""
