"""Following a run until it is over, somebody interrupts, or the time is up."""
