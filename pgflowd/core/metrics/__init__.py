"""The numbers of the daemon."""
