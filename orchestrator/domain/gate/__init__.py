"""The release gate: a pure function of a policy and frozen evidence that returns a verdict."""
