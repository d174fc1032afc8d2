"""The stores of a database: SQLite beside the controller, or Postgres for many controllers."""
