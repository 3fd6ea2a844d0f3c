"""Flows as their authors define them."""
