"""The log of a cell."""
