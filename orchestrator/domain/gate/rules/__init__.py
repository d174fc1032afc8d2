"""The rules: each looks at a case and says what it came to, for every place that it is about."""
