"""Queries the database. Does not import `host`."""
