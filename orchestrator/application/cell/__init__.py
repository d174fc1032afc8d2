"""The life of a cell: the flow, and a module per phase."""
