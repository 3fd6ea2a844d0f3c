"""
One file per process you see in ps. The supervisor starts the rest.

The supervisor forks its children by `host.fork.fork` and runs in them

    worker.main(channel, settings, log, served) -> int
    listener.main(channel, settings, log) -> int
    sweeper.main(channel, settings, log) -> int
    discovery.main(channel, settings, log, entry) -> int

which return the exit code of supervision.md, section 1 (`EXIT_…` below). `log` carries
process, flow and daemon name already; its descriptor is kept open. The channel's end
(`channel.at_end`) means that the supervisor is gone: leave within 2 s.
"""

EXIT_ASKED = 0  # ended as asked
EXIT_REPLACE = 10  # said Leaving: my row is deprecated or gone, I have drained
EXIT_BUG = 70  # said Failed: a bug of ours
EXIT_CANNOT = 78  # said Failed: cannot start, and trying again would not help
