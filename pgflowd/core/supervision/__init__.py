"""Decides for the supervisor."""
