"""Benchmarks: every one of a product, and how each went over time."""
