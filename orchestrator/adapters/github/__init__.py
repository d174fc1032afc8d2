"""GitHub commit statuses."""
