"""Values and rules of validation; standard library only, no I/O, no clock."""
