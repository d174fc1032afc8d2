"""Two runs beside each other."""
