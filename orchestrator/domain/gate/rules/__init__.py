"""The rules: each evaluates a context and yields one result per place that it applies to."""
