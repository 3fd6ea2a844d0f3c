"""The supervisor: starts, watches and stops all other processes."""
