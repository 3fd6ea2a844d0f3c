"""Where listener and sweeper take their orders, also in the middle of a call that waits."""

from __future__ import annotations

import select
import signal
import sys
import time

import pytest

from pgflowd.core.messages import QuickStop
from pgflowd.core.settings.sections import LoggingSettings, Settings
from pgflowd.host.channel import Channel
from pgflowd.host.logs import open_log
from pgflowd.processes.service import Service, StopRequested


@pytest.fixture
def service_and_supervisor():
    before = signal.getsignal(signal.SIGIO)
    supervisor, ours = Channel.pair()
    yield Service(ours, Settings(), open_log(LoggingSettings(), process="service")), supervisor
    signal.signal(signal.SIGIO, before)
    supervisor.close()
    ours.close()


def test_an_order_ends_a_call_that_waits(service_and_supervisor):
    service, supervisor = service_and_supervisor

    with pytest.raises(StopRequested), service.interruptible():
        supervisor.send(QuickStop())
        select.select([], [], [], 5)  # for example a database call


def test_an_order_that_comes_where_exceptions_are_dropped_is_obeyed_a_little_later(
    service_and_supervisor, monkeypatch
):
    service, supervisor = service_and_supervisor
    dropped = []
    monkeypatch.setattr(sys, "unraisablehook", lambda seen: dropped.append(seen.exc_type))

    class Ending:
        def __del__(self) -> None:
            supervisor.send(QuickStop())

    with service.interruptible():
        Ending()
    assert dropped == [StopRequested]

    with pytest.raises(StopRequested):
        service.wait(time.monotonic() + 5)
