// Live updates, clocks and keys. Pages work without it.
