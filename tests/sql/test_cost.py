"""
The cost of a call, counted in pages and statements; never timed.

Pages are the shared buffers that EXPLAIN counts for the whole call, warmed up before. A cost
that does not grow is one that stays within a small factor when the data grow a hundredfold.
"""

import pytest
from support.contract import ContractDatabase


@pytest.fixture(scope="module", params=[15, 18])
def cost_server(request, server_of):
    """Costs are those of plans, so the oldest server is asked, too."""
    return server_of(request.param)


@pytest.fixture(scope="module")
def contract_database(cost_server):
    with cost_server.database() as scratch:
        yield scratch


@pytest.fixture
def shared(cost_server):
    with cost_server.database() as scratch:
        database = ContractDatabase(scratch.dsn)
        yield database
        database.close()


def pages(session, query, *args):
    """Buffers touched by a statement; what it did is undone."""
    with session.conn.transaction(force_rollback=True):
        plan = session.value(f"explain (analyze, buffers, format json) {query}", *args)
    top = plan[0]["Plan"]
    return top["Shared Hit Blocks"] + top["Shared Read Blocks"] + top["Shared Dirtied Blocks"]


def warm(session, query, *args):
    """The cost once caches and plans are there."""
    return min(pages(session, query, *args) for _ in range(4))


def claim_of(session, slug, count):
    ids = session.column(f"select msg_id from pgmq.q_{slug} order by msg_id desc limit %s", count)
    query = "select * from pgflow.start_tasks(%s, %s, %s)"
    return warm(session, query, slug, ids, session.worker(slug))


def root_map(session, slug, size):
    session.flow(slug, "m*")
    session.start(slug, [{"text": "x" * 80, "number": n} for n in range(size)])
    return slug


def dependent_map(session, slug, size):
    session.flow(slug, "a", "m*: a")
    run = session.start(slug)
    session.claim(slug)
    session.complete(run, "a", [{"text": "x" * 80, "number": n} for n in range(size)])
    return slug


@pytest.mark.parametrize("make", [root_map, dependent_map])
def test_claiming_ten_of_a_map_unpacks_its_array_once_and_nothing_more_grows(suite, make):
    small, large = make(suite, "small", 100), make(suite, "large", 10_000)
    suite.do("analyze pgflow.step_tasks")
    array_pages = 10_000 * 120 / 8192  # what one reading of the large array takes

    few, many = claim_of(suite, small, 10), claim_of(suite, large, 10)

    assert many <= few * 2 + 2 * array_pages


@pytest.mark.parametrize("make", [root_map, dependent_map])
def test_an_array_beyond_the_working_memory_is_read_once_per_claim(suite, make):
    make(suite, "f", 5_000)
    suite.do("set local work_mem = '64kB'")
    ids = suite.column("select msg_id from pgmq.q_f order by msg_id desc limit 50")
    query = "explain (analyze, buffers, format json) select * from pgflow.start_tasks('f', %s, %s)"

    with suite.conn.transaction(force_rollback=True):
        plan = suite.value(query, ids, suite.worker("f"))

    array_pages = 5_000 * 120 / 8192
    assert plan[0]["Plan"]["Temp Read Blocks"] <= 2 * array_pages


def test_claiming_fifty_costs_no_more_than_five_times_ten(suite):
    dependent_map(suite, "f", 10_000)

    assert claim_of(suite, "f", 50) <= 6 * claim_of(suite, "f", 10)


def test_completing_one_task_of_a_map_does_not_grow_with_the_map(suite):
    costs = {}
    for slug, size in (("small", 20), ("large", 5_000)):
        root_map(suite, slug, size)
        run = suite.value("select run_id from pgflow.runs where flow_slug = %s", slug)
        suite.start_tasks(slug, suite.active(slug)[:5])
        costs[slug] = warm(
            suite, "select * from pgflow.complete_task(%s, 'm', 1, '{\"x\": 1}')", run
        )

    assert costs["large"] <= costs["small"] * 2 + 20


CALLS = [
    "select * from pgflow.start_flow('f', '{}')",
    "select * from pgflow.start_tasks('f', (select array_agg(msg_id) from pgmq.q_f), %(worker)s)",
    "select * from pgflow.complete_task(%(run)s, 'a', 0, '1')",
    "select * from pgflow.fail_task(%(run)s, 'a', 0, 'x')",
    "select pgflow.requeue_stalled_tasks()",
    "select pgflow.get_run_with_states(%(run)s)",
]


def costs(session):
    """The cost of each call on a fresh run beside all others."""
    with session.conn.transaction(force_rollback=True):
        run, _unclaimed = session.start("f"), session.start("f")
        session.start_tasks("f", [session.task(run, "a")["message_id"]])
        named = {"%(run)s": f"'{run}'", "%(worker)s": f"'{session.worker('f')}'"}
        found = {}
        for call in CALLS:
            query = call
            for name, value in named.items():
                query = query.replace(name, value)
            found[call] = warm(session, query)
        return found


def finish_many(session, count):
    """Runs of f, from start to end, by few statements."""
    session.do(
        "select count(*) from pgflow.start_flows('f', array_fill('{}'::jsonb, array[%s]))", count
    )
    for _ in ("a", "b"):
        session.do(
            "select count(*) from pgflow.start_tasks('f',"
            " (select array_agg(msg_id) from pgmq.q_f), %s)",
            session.worker("f"),
        )
        session.do(
            "select count(*) from pgflow.step_tasks t, lateral pgflow.complete_task("
            "t.run_id, t.step_slug, t.task_index, '1') where t.status = 'started'"
        )
    session.do("vacuum analyze pgflow.runs, pgflow.step_states, pgflow.step_tasks, pgmq.q_f")


def test_no_call_grows_with_the_number_of_finished_runs(shared):
    shared.flow("f", "a", "b: a")
    shared.worker("f")
    few = costs(shared)

    finish_many(shared, 3000)

    assert shared.value("select count(*) from pgflow.runs where status = 'completed'") == 3000
    many = costs(shared)
    assert {call: cost for call, cost in many.items() if cost > few[call] * 2 + 20} == {}


def test_a_started_map_sends_its_messages_in_one_batch(suite):
    suite.flow("f", "m*", "n*")
    suite.do(
        """create table public.statements (n int);
           create function count_statement() returns trigger language plpgsql as $$
           begin insert into public.statements values (1); return null; end $$;
           create trigger counted after insert on pgmq.q_f
           for each statement execute function count_statement()"""
    )

    suite.start("f", list(range(100)))

    assert suite.value("select count(*) from statements") <= 2
    assert len(suite.queue("f")) == 200


def test_a_report_of_one_task_of_a_map_reads_no_other_task(suite):
    """The last one gathers; all before it leave their siblings alone."""
    root_map(suite, "f", 2_000)
    run = suite.value("select run_id from pgflow.runs")
    suite.start_tasks("f", suite.active("f")[:3])

    cost = warm(suite, "select * from pgflow.complete_task(%s, 'm', 0, '1')", run)

    task_pages = suite.value("select pg_relation_size('pgflow.step_tasks') / 8192")
    assert cost < task_pages * 2 + 200


def test_49_empty_maps_are_one_call(suite):
    suite.flow("f", "s0*", *[f"s{n}*: s{n - 1}" for n in range(1, 49)])

    assert warm(suite, "select * from pgflow.start_flow('f', '[]')") < 40_000
