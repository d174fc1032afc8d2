"""The flow of a cell, with a module per phase."""
