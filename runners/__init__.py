"""Access to machines: providers, the workspace on a machine, shells, and the agent."""
