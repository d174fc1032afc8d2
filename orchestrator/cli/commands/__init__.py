"""The commands, a module per group; each is a thin face over the modules beside this folder."""
