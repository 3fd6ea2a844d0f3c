def test_one(database):
    assert database.connect().execute("select count(*) from pgmq.meta").fetchone() == (0,)
def test_two(empty_database):
    assert empty_database.connect().execute("select 1").fetchone() == (1,)
