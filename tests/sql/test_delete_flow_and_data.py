"""A flow goes with all it had."""


def test_everything_of_the_flow_goes_and_nothing_else(suite):
    for slug in ("f", "g"):
        suite.flow(slug, "a", "b: a")
    run, other = suite.start("f"), suite.start("g")
    suite.claim("f")
    suite.complete(run, "a")

    suite.do("select pgflow.delete_flow_and_data(p_flow_slug => 'f')")

    for table in ("flows", "steps", "deps", "runs", "step_states", "step_tasks"):
        slugs = suite.column(f"select distinct flow_slug from pgflow.{table}")
        assert slugs == ["g"], table
    assert suite.column("select queue_name::text from pgmq.list_queues()") == ["g"]
    assert suite.value("select to_regclass('pgmq.q_f') is null")
    assert suite.value("select to_regclass('pgmq.a_f') is null")
    assert suite.run(other)["status"] == "started"


def test_an_unknown_flow_is_not_an_error(suite):
    suite.do("select pgflow.delete_flow_and_data('nobody')")


def test_a_second_deletion_is_not_an_error(suite):
    suite.flow("f", "a")
    suite.do("select pgflow.delete_flow_and_data('f')")

    suite.do("select pgflow.delete_flow_and_data('f')")


def test_running_work_does_not_protect_a_flow(suite):
    suite.flow("f", "a")
    suite.start("f")
    suite.claim("f")

    suite.do("select pgflow.delete_flow_and_data('f')")

    assert suite.value("select count(*) from pgflow.runs") == 0


def test_it_can_be_made_anew_in_the_same_transaction(suite):
    suite.flow("f", "a")
    suite.start("f")
    suite.do("select pgflow.delete_flow_and_data('f')")

    suite.flow("f", "b")
    run = suite.start("f")
    suite.finish("f")

    assert suite.run(run)["status"] == "completed"


def test_a_flow_with_capitals_goes_with_its_queue(suite):
    suite.flow("MyFlow", "a")
    suite.start("MyFlow")

    suite.do("select pgflow.delete_flow_and_data('MyFlow')")

    assert suite.value("select to_regclass('pgmq.q_myflow') is null")
    assert suite.column("select queue_name from pgmq.list_queues()") == []


def test_a_flow_whose_queue_is_lost_is_deleted_all_the_same(suite):
    suite.flow("f", "a")
    suite.do("select pgmq.drop_queue('f')")

    suite.do("select pgflow.delete_flow_and_data('f')")

    assert suite.value("select count(*) from pgflow.flows") == 0


def test_an_unknown_name_does_not_drop_a_queue_of_another(suite):
    suite.flow("MyFlow", "a")

    suite.do("select pgflow.delete_flow_and_data('myflow')")

    assert suite.value("select to_regclass('pgmq.q_myflow') is not null")
