"""The line between a worker and its zygote: messages of any length, in parts."""

from __future__ import annotations

import socket

import pytest

from pgflowd.processes.zygote.main import ZygoteSocket


@pytest.mark.parametrize("text", ["plain ", "漢字", "\N{PARTY POPPER}", '"\\"', "\n\0"])
def test_a_long_message_comes_whole_whatever_it_holds(text):
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    worker, zygote = ZygoteSocket(ours), ZygoteSocket(theirs)
    message = {"say": "definition", "shape": text * 20_000}
    ours.setblocking(False)
    theirs.setblocking(False)

    zygote.send_long(message)
    received = worker.receive()
    while received is None and not worker.at_end:
        zygote.flush()
        received = worker.receive()

    assert received is not None
    assert received.message == message
    worker.close()
    zygote.close()
