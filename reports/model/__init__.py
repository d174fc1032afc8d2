"""Report models, independent of format: one model is rendered as Markdown, HTML and JSON."""
