"""A module or a folder for each page: its routes and its content."""
