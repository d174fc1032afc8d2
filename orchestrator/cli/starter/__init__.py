"""What `seatrial init` finds out about a project, and the two files that it writes."""
