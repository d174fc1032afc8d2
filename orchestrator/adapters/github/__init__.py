"""GitHub: statuses of commits."""
