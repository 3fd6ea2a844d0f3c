"""The zygote: has imported a flow and forks its runners."""
