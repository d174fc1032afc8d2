"""Messages by HTTP."""
