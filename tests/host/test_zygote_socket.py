"""The line between a worker and its zygote: messages of any length, in parts."""

from __future__ import annotations

import socket

import pytest

from pgflowd.processes.zygote.socket import ZygoteSocket


@pytest.mark.parametrize("text", ["plain ", "漢字", "\N{PARTY POPPER}", '"\\"', "\n\0"])
def test_a_long_message_comes_whole_whatever_it_holds(text):
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    worker, zygote = ZygoteSocket(ours), ZygoteSocket(theirs)
    message = {"say": "definition", "shape": text * 20_000}
    ours.setblocking(False)
    theirs.setblocking(False)

    zygote.send_long(message)
    told = worker.receive()
    while told is None and not worker.at_end:
        zygote.flush()
        told = worker.receive()

    assert told is not None
    assert told.message == message
    worker.close()
    zygote.close()
