"""What a report says, before it has a format: one model becomes Markdown, HTML and JSON."""
