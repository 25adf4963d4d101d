"""JSON documents: how `--json` and the REST API show a read model, both by Pydantic and so the same."""

import base64
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from redrive.operate import cursors
from redrive.store.reads.models import Page

Row = TypeVar("Row")


class Listed(BaseModel, Generic[Row]):
    """at: the database's clock. next: cursor for `after`, None at the end. looked_at: how many rows a bounded search
    looked at, where it ended before the rows did.
    """

    items: Sequence[Row]
    at: datetime
    next: str | None
    looked_at: int | None = None


def listed(page: Page[Row, Any]) -> Listed[Row]:
    return Listed(items=page.rows, at=page.at, next=cursors.encode(page.next), looked_at=page.looked_at)


def plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _body(one) if isinstance(one, bytes) else plain(one) for key, one in value.items()}
    return to_jsonable_python(value)


def _body(value: bytes) -> dict[str, str]:
    """Text as it is (numbers are not reread, so none loses digits); anything else in base64."""
    try:
        return {"text": value.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def titled(name: str, value: Any) -> dict[str, Any]:
    return {"schema": f"redrive.{name}/v1", **plain(value)}
