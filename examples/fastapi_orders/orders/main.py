"""The web application. The relay lives as long as it does; `redrive relay orders.outbox:outbox` would do as well."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI
from pydantic import BaseModel
from sqlalchemy.orm import Session

import redrive
from orders.database import DSN, Order, session
from orders.outbox import outbox


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with outbox.running(DSN, name="orders"):
        yield


app = FastAPI(lifespan=lifespan)
InTransaction = Annotated[Session, Depends(session)]


class NewOrder(BaseModel):
    email: str
    item: str


@app.post("/orders", status_code=201)
def place_order(new: NewOrder, session: InTransaction) -> dict[str, int]:
    order = Order(email=new.email, item=new.item)
    session.add(order)
    session.flush()  # so that it has an id
    redrive.enqueue(session, "receipt", {"order": order.id, **new.model_dump()}, key=f"receipt:{order.id}")
    return {"id": order.id}


@app.get("/orders/{id}/receipt")
def receipt(id: int, session: InTransaction) -> dict[str, str]:
    return {"state": redrive.status(session, key=f"receipt:{id}").state}
