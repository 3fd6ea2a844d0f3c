"""The settings: keys, sections, checks."""
