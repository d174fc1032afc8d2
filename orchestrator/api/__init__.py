"""The REST interface: routes over the operations of `orchestrator.application`."""

import orchestrator.api.described_records  # noqa: F401 - before any route is declared
