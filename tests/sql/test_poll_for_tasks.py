"""poll_for_tasks is deprecated: a notice and no rows."""


def test_it_returns_no_rows_and_warns(suite):
    suite.flow("f", "a")
    suite.start("f")
    notices = []
    suite.conn.add_notice_handler(lambda diagnostic: notices.append(diagnostic.severity))

    assert suite.rows("select * from pgflow.poll_for_tasks('f', 1, 10)") == []
    assert (
        suite.rows(
            "select * from pgflow.poll_for_tasks(queue_name => 'f', vt => 1, qty => 10,"
            " max_poll_seconds => 1, poll_interval_ms => 10)"
        )
        == []
    )
    assert notices and set(notices) <= {"NOTICE", "WARNING"}
    assert suite.queue("f")[0]["read_ct"] == 0
