"""The REST interface: a thin face over the operations of `orchestrator.application`."""
