"""The only place that names concrete classes: reading, controlling, serving."""
