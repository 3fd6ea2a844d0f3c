"""Asks the database. Knows nothing of the machine (`host`)."""
