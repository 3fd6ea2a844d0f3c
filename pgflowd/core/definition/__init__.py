"""Flows as their authors define them: checked, ordered, and written as JSON."""
