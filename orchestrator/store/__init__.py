"""Stores of a database: SQLite for one controller, or Postgres for several."""
