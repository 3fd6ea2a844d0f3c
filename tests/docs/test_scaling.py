"""The Python of docs/operate/scaling.md, with two databases as its cells."""

from __future__ import annotations

from psycopg.conninfo import conninfo_to_dict
from support.pages import blocks_of

DEFINITION = "select pgflow.create_flow('charge'), pgflow.add_step('charge', 'once')"


def test_an_application_chooses_the_cell_of_a_run(server, tmp_path, monkeypatch):
    with server.database() as eu, server.database() as us:
        services = tmp_path / "services"
        for name, cell in {"eu": eu, "us": us}.items():
            cell.connect().execute(DEFINITION)
            parts = "".join(f"{key}={value}\n" for key, value in conninfo_to_dict(cell.dsn).items())
            with services.open("a") as file:
                file.write(f"[pgflow-{name}]\n{parts}\n")
        monkeypatch.setenv("PGSERVICEFILE", str(services))
        (text,) = blocks_of("docs/operate/scaling.md", "python")
        page: dict = {}
        exec(text, page)

        run_id = page["charge"]("us", {"amount": 1})

        started = "select run_id::text from pgflow.runs"
        assert us.connect().execute(started).fetchall() == [(run_id,)]
        assert eu.connect().execute(started).fetchall() == []
        for client in page["CELLS"].values():
            client.close()
