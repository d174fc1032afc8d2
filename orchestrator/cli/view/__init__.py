"""What a run looks like on a terminal: pure functions from what the controller shows."""
