"""The runner: executes handlers, one task at a time."""
