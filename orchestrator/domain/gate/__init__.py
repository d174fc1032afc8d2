"""The release gate: a pure function from a policy and frozen evidence to a verdict."""
