"""The Python of docs/guides/handlers.md, on a database."""

from __future__ import annotations

from support.pages import executed

from pgflowd.testing import run_flow


def test_a_sale_is_charged_waited_for_and_booked(database) -> None:
    flow = executed("docs/guides/handlers.md")["flow"]
    connection = database.connect()
    connection.execute("create table bookings (payment text, parcel text)")

    run = run_flow(flow, {"card": "visa"}, signals={"parcel": (60, "p7")}, connection=connection)

    assert run.status == "completed"
    booked = connection.execute("select * from bookings").fetchall()
    assert booked == [("visa was charged", "p7")]
