"""Orders that are charged in the background: a plain script with SQLAlchemy, and its jobs.

``python shop.py create-tables`` once, ``henchman work shop:app`` in one terminal, ``python shop.py order 990`` in
another.
"""

import json
import os
import sys
import time

from sqlalchemy import create_engine, orm
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, sessionmaker

from henchman import App
from henchman.contrib.sqlalchemy import bind, with_session

engine = create_engine(os.environ.get("SHOP_DATABASE", "sqlite:///shop.sqlite"))
PAUSE = float(os.environ.get("SHOP_PAUSE", "0"))  # seconds: a bank takes its time
Session = sessionmaker(engine)
app = App(transactional=True)
bind(app, Session)


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    cents: Mapped[int]
    status: Mapped[str] = mapped_column(default="new")


@app.job(result_ttl=3600, timeout=30)
@with_session(Session, app=app)
def charge(order_id: int, session: orm.Session) -> str:
    """The session is this run's own: committed when it returns, rolled back when it raises or is killed."""
    order = session.get_one(Order, order_id)
    order.status = "charged"
    session.flush()
    print(f"charging order {order_id}", flush=True)
    time.sleep(PAUSE)
    send_receipt.enqueue(order_id)  # when the session is committed
    return f"{order.cents} cents"


@app.job
@with_session(Session)
def send_receipt(order_id: int, session: orm.Session) -> None:
    print(f"receipt for order {order_id}: {session.get_one(Order, order_id).status}", flush=True)


def place(cents: int) -> dict[str, object]:
    """The job is pushed when the order is committed; an order that is refused leaves none."""
    with Session() as session, app.inside(session):
        order = Order(cents=cents)
        session.add(order)
        session.flush()
        handle = charge.enqueue(order.id)
        if cents <= 0:
            raise ValueError("an order costs something")
        session.commit()
        return {"order": order.id, "job": handle.jid}


def look(order_id: int) -> dict[str, object]:
    with Session() as session:
        return {"order": order_id, "status": session.get_one(Order, order_id).status}


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["create-tables"]:
            Base.metadata.create_all(engine)
        case ["order", cents]:
            print(json.dumps(place(int(cents))))
        case ["result", jid]:
            print(app.result(jid, timeout=60))
        case ["look", order]:
            print(json.dumps(look(int(order))))
        case _:
            sys.exit("usage: shop.py create-tables | order CENTS | result JOB | look ORDER")
