"""
The code of docs/guides/applications.md that starts runs; test_other_migration_tools.py has the
rest.
"""

from __future__ import annotations

import asyncio
import sys
import types
from typing import Any

import asyncpg
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from support.pages import blocks_of
from support.shop import Shop

from pgflowd import AsyncClient


def test_an_order_and_its_run_are_committed_together(database) -> None:
    shop, module = Shop(database), types.ModuleType("orders_page")
    sys.modules["orders_page"] = module  # where SQLAlchemy looks up annotations
    page: dict[str, Any] = vars(module)
    shop.do("select pgflow.create_flow('orders')")
    shop.do("select pgflow.add_step('orders', 'pay')")
    of_sqlalchemy, of_asyncpg, *_ = blocks_of("docs/guides/applications.md", "python")
    exec(of_sqlalchemy, page)
    exec(of_asyncpg, page)

    engine = sqlalchemy.create_engine(database.dsn.replace("://", "+psycopg://", 1))
    page["Base"].metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        page["place"](session, database.client, "visa")
    with Session(engine) as session:
        page["place"](session, database.client, "gone")  # and no commit
    engine.dispose()

    async def with_asyncio() -> None:
        flows = AsyncClient(database.dsn)
        engine = create_async_engine(database.dsn.replace("://", "+asyncpg://", 1))
        async with AsyncSession(engine) as session, session.begin():
            await page["place_async"](session, flows, "master")
        await engine.dispose()
        async with asyncpg.create_pool(database.dsn, min_size=1) as pool:
            await page["place_plain"](pool, flows, "amex")
        await flows.close()

    asyncio.run(with_asyncio())
    found = shop.rows(
        "select card from orders join pgflow.runs on (input ->> 'order')::int = orders.id"
        " order by orders.id"
    )
    assert [card for (card,) in found] == ["visa", "master", "amex"]
    assert [tuple(row) for row in shop.rows("select count(*) from orders")] == [(3,)]
