"""The zygote: a process that has imported a flow and forks its runners."""
