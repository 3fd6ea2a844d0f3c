"""A worker gathers spans for a moment, and never longer, however many come."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from support.engine import task

from pgflowd.core.statuses import Outcome
from pgflowd.core.traces import ORDINARY
from pgflowd.core.worker.actions import SendSpans
from pgflowd.core.worker.events import ReportAnswer, Verdict
from pgflowd.core.worker.task import TaskReport
from pgflowd.host.span_socket import MAX_DATAGRAM, SpanSender, listen
from pgflowd.processes.worker.metrics import ENOUGH, WAIT_S, SpanBuffer


def ended(token: int) -> SendSpans:
    report = TaskReport(task(token)._replace(trace=ORDINARY), Outcome.COMPLETED)
    report.began_at, report.ended_at = 1.0, 2.0
    return SendSpans((report,), (ReportAnswer(Verdict.COMPLETED),), ())


def test_spans_are_sent_though_others_come_at_each_moment(tmp_path: Path) -> None:
    end, sender = listen(tmp_path / "span"), SpanSender(tmp_path / "span")

    async def add_many() -> None:
        buffer = SpanBuffer(asyncio.get_running_loop(), sender, "alpha", str)
        for token in range(3 * ENOUGH):
            buffer.add(ended(token))
            await asyncio.sleep(0)
        buffer.add(ended(3 * ENOUGH))
        await asyncio.sleep(2 * WAIT_S)

    asyncio.run(add_many())

    sizes = []
    try:
        while True:
            _, portion = json.loads(end.recv(MAX_DATAGRAM))
            sizes.append(len(portion["attempts"]))
    except BlockingIOError:
        end.close()
    assert sum(sizes) == 3 * ENOUGH + 1 and max(sizes) <= ENOUGH + 1
