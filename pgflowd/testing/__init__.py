"""For tests of flows: run them in this process, or on a scratch database."""
