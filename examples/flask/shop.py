"""Orders that are charged in the background: a Flask application with SQLAlchemy, and its jobs."""

import os
import time

from flask import Flask, abort
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, scoped_session, sessionmaker

from henchman import App
from henchman.contrib.flask import Henchman

engine = create_engine(os.environ.get("SHOP_DATABASE", "sqlite:///shop.sqlite"))
PAUSE = float(os.environ.get("SHOP_PAUSE", "0"))  # seconds: a bank takes its time
session = scoped_session(sessionmaker(engine))
jobs = Henchman(app=App(transactional=True))


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    cents: Mapped[int]
    status: Mapped[str] = mapped_column(default="new")


@jobs.app.job(result_ttl=3600, timeout=30)
def charge(order_id: int) -> str:
    print(f"charging order {order_id}", flush=True)
    time.sleep(PAUSE)
    order = session.get_one(Order, order_id)
    order.status = "charged"
    session.commit()
    return f"{order.cents} cents"


def create_app() -> Flask:
    made = Flask("shop")
    made.config["HENCHMAN"] = {"concurrency": 4}
    jobs.init_app(made, session=session)

    @made.cli.command("create-tables")
    def create_tables() -> None:
        """Once, before the first process: two that begin at once would make the same tables."""
        Base.metadata.create_all(engine)

    @made.teardown_appcontext
    def close(error: BaseException | None) -> None:
        session.remove()

    @made.post("/orders/<int(signed=True):cents>")
    def create(cents: int) -> dict[str, object]:
        """The job is pushed when the order is committed; an order that is refused leaves none."""
        order = Order(cents=cents)
        session.add(order)
        session.flush()
        handle = charge.enqueue(order.id)
        if cents <= 0:
            abort(422, "an order costs something")
        session.commit()
        return {"order": order.id, "job": handle.jid}

    @made.get("/orders/<int:order_id>")
    def look(order_id: int) -> dict[str, object]:
        order = session.get(Order, order_id) or abort(404, f"there is no order {order_id}")
        return {"order": order.id, "status": order.status}

    return made
