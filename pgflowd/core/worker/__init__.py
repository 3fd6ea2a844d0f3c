"""Decides for a worker."""
