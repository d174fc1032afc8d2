"""These folders are payloads for tests, not tests: nothing here is collected in place."""

collect_ignore_glob = ["*"]
