"""The world: each adapter implements a port and keeps its technology's errors to itself."""
