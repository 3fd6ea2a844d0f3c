"""Decides. No clock, no chance, no sockets, no files."""
