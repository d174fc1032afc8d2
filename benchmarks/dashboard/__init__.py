"""The dashboard over a database that is as full as a large project's after two years."""
