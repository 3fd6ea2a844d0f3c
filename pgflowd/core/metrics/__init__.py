"""The metrics of the daemon: their definitions, how they are counted, and their text form."""
