"""Statistics with scipy."""
