"""Asks the machine. Knows nothing of the database (`db`)."""
