"""Tasks from the database through worker and runner, and back."""

from __future__ import annotations

DIAMOND = """
    from pgflowd import Flow

    flow = Flow("flow", max_attempts=2, base_delay=0, timeout=5)

    @flow.step
    def website(run):
        return {"url": run["url"], "size": 3}

    @flow.step
    async def sentiment(website):
        return website["size"] * 2

    @flow.step
    def summary(website, ctx):
        assert ctx.flow_input() == {"url": "x"}
        assert ctx.step_output("website") == website
        return "s" * website["size"]

    @flow.step
    def save(sentiment, summary):
        return [sentiment, summary]
"""


def test_a_diamond_runs_to_its_end(start_worker):
    worker = start_worker(DIAMOND)

    run = worker.start_run({"url": "x"})

    assert worker.output(run) == {"save": [6, "sss"]}
    assert worker.outcomes(run) == ["completed"] * 4
    assert worker.drain() == 0
