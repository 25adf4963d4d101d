"""The web console: server-made pages over the same operations as the command line.

`routes.py` names every page, `pages/` has them, `display.py` is the one place through which data of messages reaches a
page, `jobs.py` keeps what takes longer than a request, `live.py` tells open pages that something changed.
"""

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from redrive.operate.console import files
from redrive.operate.console.files import Asset
from redrive.operate.console.rendering import bare_page
from redrive.operate.console.routes import router as _router

router = _router()


def asset(name: str) -> Asset | None:
    return files.by_linked_name().get(name)


def login_page(request: Request, *, link: str | None, next: str, error: str | None) -> Response:
    return bare_page(request, "login.html", title="Sign in", link=link, next=next, error=error)


def error_page(request: Request, status: int, problem: Mapping[str, Any]) -> Response:
    values = {"detail": problem.get("detail", ""), "advice": problem.get("next", "")}
    return bare_page(request, "refused.html", title=str(problem.get("title", "Refused")), status=status, **values)
