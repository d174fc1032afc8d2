"""What the gate promises of benchmarks, as a table that is computed: false alarms and power."""
