"""Shared by all tests: databases, workers, daemons, networks and invariants."""
