"""Commands that work on a database of their own: demo, dev, new."""
