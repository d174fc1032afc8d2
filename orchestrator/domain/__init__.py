"""Values and rules of validation; no I/O, no clock, and only the standard library."""
