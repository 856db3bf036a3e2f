"""Orders that are charged in the background: a FastAPI application with SQLAlchemy, and its jobs."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from henchman import App
from henchman.contrib.fastapi import Jobs, exception_handlers, lifespan, router
from henchman.contrib.sqlalchemy import bind

engine = create_async_engine(os.environ.get("SHOP_DATABASE", "sqlite+aiosqlite:///shop.sqlite"))
PAUSE = float(os.environ.get("SHOP_PAUSE", "0"))  # seconds: a bank takes its time
Session = async_sessionmaker(engine, expire_on_commit=False)
jobs = App(transactional=True)
bind(jobs, Session)


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    cents: Mapped[int]
    status: Mapped[str] = mapped_column(default="new")


@jobs.job(result_ttl=3600, timeout=30)
async def charge(order_id: int) -> str:
    print(f"charging order {order_id}", flush=True)
    await asyncio.sleep(PAUSE)
    async with Session.begin() as session:
        order = await session.get_one(Order, order_id)
        order.status = "charged"
        return f"{order.cents} cents"


@asynccontextmanager
async def tables(web: FastAPI) -> AsyncIterator[None]:
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    yield
    await engine.dispose()


async def opened(app: Jobs) -> AsyncIterator[AsyncSession]:
    async with Session() as session:
        with app.inside(session):
            yield session


web = FastAPI(lifespan=lifespan(jobs, tables), exception_handlers=exception_handlers)
web.include_router(router(jobs, token=os.environ.get("SHOP_API_TOKEN") or None), prefix="/jobs-api")


@web.post("/orders")
async def create(cents: int, session: Annotated[AsyncSession, Depends(opened)]) -> dict[str, object]:
    """The job is pushed when the order is committed; an order that is refused leaves none."""
    order = Order(cents=cents)
    session.add(order)
    await session.flush()
    handle = await charge.aenqueue(order.id)
    if cents <= 0:
        raise HTTPException(422, "an order costs something")
    await session.commit()
    return {"order": order.id, "job": handle.jid}


@web.get("/orders/{order_id}")
async def look(order_id: int) -> dict[str, object]:
    async with Session() as session:
        order = await session.get(Order, order_id)
    if order is None:
        raise HTTPException(404, f"there is no order {order_id}")
    return {"order": order.id, "status": order.status}
