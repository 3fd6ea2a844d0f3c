"""The settings: their keys and sections, how they are loaded, checked and shown."""
