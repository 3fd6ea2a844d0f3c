"""Uses the machine: processes, sockets, files. Does not import `db`."""
