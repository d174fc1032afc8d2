"""The command line: a client of a controller's REST API."""
