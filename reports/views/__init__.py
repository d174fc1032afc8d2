"""From evidence to models: pure functions, one module per part of a report."""
