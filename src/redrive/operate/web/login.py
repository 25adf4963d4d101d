"""`/login`, `/logout`, and `/livez` for probes.

A one-time link becomes a session by POST only, so that a mail scanner or a preview does not use it up.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Form
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from redrive.operate.web.authentication import Visitor, session_cookie
from redrive.operate.web.dependencies import authenticator, require, url
from redrive.operate.web.principal import Permission
from redrive.operate.web.problems import Refusal


def login_router(login_page: Any) -> APIRouter:
    """login_page: `(request, *, link, next, error) -> Response`."""
    router = APIRouter(include_in_schema=False)

    @router.get("/livez")
    async def livez() -> Response:
        return PlainTextResponse("ok\n")

    @router.get("/robots.txt")
    async def robots() -> Response:
        return PlainTextResponse("User-agent: *\nDisallow: /\n")

    @router.get("/login")
    async def show(request: Request, link: str | None = None, next: str = "/") -> Response:
        page: Response = login_page(request, link=link, next=own_path(next), error=None)
        return page

    @router.post("/login")
    async def log_in(request: Request, token: Annotated[str, Form()], next: Annotated[str, Form()] = "/") -> Response:
        session = await authenticator(request).log_in(request, token.strip())
        if session is None:
            refusal = Refusal(401, "BAD_TOKEN", "A login failed.", denied=True)
            await authenticator(request).denied(request, refusal, None)
            error = "This token or link is not good: unknown, used, revoked or expired."
            page: Response = login_page(request, link=None, next=own_path(next), error=error)
            page.status_code = 401
            return page
        answer = RedirectResponse(url(request, own_path(next)), status_code=303)
        _set_session(request, answer, session, authenticator(request).auth.session_seconds)
        return answer

    @router.post("/logout", dependencies=[require(Permission.READ)])
    async def log_out(request: Request) -> Response:
        visitor: Visitor = request.scope["redrive.visitor"]
        if visitor.session is not None:
            await authenticator(request).log_out(visitor.session)
        answer = RedirectResponse(url(request, "/login"), status_code=303)
        _set_session(request, answer, "", 0)
        return answer

    return router


def own_path(wanted: str) -> str:
    plain = wanted.isascii() and wanted.isprintable() and "\\" not in wanted
    return wanted if plain and wanted.startswith("/") and not wanted.startswith("//") and len(wanted) < 2000 else "/"


def _set_session(request: Request, answer: Response, session: str, seconds: float) -> None:
    auth = authenticator(request).auth
    answer.set_cookie(session_cookie(auth), session, max_age=int(seconds), secure=auth.secure, httponly=True)
