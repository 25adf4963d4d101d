"""The query parameter that every list has."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from redrive.operate import cursors

After = Annotated[str | None, Query(max_length=cursors.LENGTH_MAX, description="The `next` of the page before.")]
