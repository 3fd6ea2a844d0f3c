"""
One module or package per process that `ps` shows. The supervisor starts the others.

The supervisor forks its children by `host.fork.fork` and calls in them

    worker.main(channel, settings, log, served, worker_id) -> int
    listener.main(channel, settings, log) -> int
    sweeper.main(channel, settings, log) -> int
    discovery.main(channel, settings, entry) -> int

which return an exit code of `core.supervision.tree`. `log` has the fields process, flow and
daemon name; its descriptor stays open. When the channel ends (`channel.at_end`), the supervisor
has ended: the child ends within 2 s.
"""
