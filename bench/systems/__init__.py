"""
Systems: what is measured, one file each, all of them with the interface of `system.System`.

A file runs in the Python environment of its system, as `python -m systems.NAME` with `bench/`
on the path, and imports nothing of the driver. To add one: write its file, pin it in
`peers.txt`, and name it in `peers.PEERS`.
"""
