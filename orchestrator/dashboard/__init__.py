"""Web pages: what people look at, rendered on the server."""
