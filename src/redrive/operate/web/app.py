"""The console as an ASGI application: the API, the pages and the systems' routers, behind the middleware.

It can be mounted in another application (`Mount("/redrive", create_app(…))`) or served on its own (`serving`).
"""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any, Final

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import iter_route_contexts
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount

from redrive.errors import OperatorError, RedriveError
from redrive.operate.web.auth_config import AuthConfig
from redrive.operate.web.authentication import Authenticator
from redrive.operate.web.dependencies import Requirement, require
from redrive.operate.web.login import login_router
from redrive.operate.web.middleware import OPEN_PATHS, Guard, refused_response
from redrive.operate.web.principal import Permission
from redrive.operate.web.problems import CONTENT_TYPE, Refusal, refusal_of
from redrive.ports import TransientFailure
from redrive.store.runtime.postgres import PostgresStore
from redrive.system import System, discover

CONNECTIONS: Final = 8
API: Final = "redrive.operate.api"
PAGES: Final = "redrive.operate.console"
API_PREFIX: Final = "/api/v1"
ASSETS: Final = "/assets/{name}"
FOREVER: Final = "public, max-age=31536000, immutable"


class Problem(BaseModel):
    """A problem (RFC 9457). code: stable. next: the command or setting that helps, if one does."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    next: str | None = None
    errors: list[dict[str, str]] | None = None


PROBLEMS: Final[dict[int | str, dict[str, Any]]] = {
    status: {"model": Problem, "description": words}
    for status, words in {
        400: "The request cannot be read, or has no Idempotency-Key.",
        401: "The request has no valid token or session.",
        403: "The role or tenant of the caller does not allow it.",
        404: "It does not exist, or belongs to another tenant.",
        409: "The state does not allow it, or another change came first.",
        413: "The body is too large.",
        422: "A value is outside its bounds, or the Idempotency-Key was used for something else.",
        429: "Too many failed logins.",
        503: "The database does not answer.",
    }.items()
}
_PHRASES: Final[Mapping[int, tuple[str, str]]] = {
    404: ("NOT_FOUND", "There is nothing at this address."),
    405: ("METHOD", "This address does not know this method."),
    400: ("BAD_REQUEST", "The request cannot be read."),
}


def create_app(dsn: str, auth: AuthConfig | None = None, *, systems: Mapping[str, System] | None = None) -> Guard:
    """The application on the database of the DSN. systems: those whose routers are mounted; None: all installed."""
    store = PostgresStore(dsn, connections=CONNECTIONS, name="redrive console")
    pages = import_module(PAGES)
    app = _application(dsn, store, error_page=pages.error_page)
    app.include_router(login_router(pages.login_page))
    app.include_router(import_module(API).router, prefix=API_PREFIX, responses=PROBLEMS)
    app.state.systems = discover() if systems is None else systems
    streamed: set[str] = set()
    for name, system in app.state.systems.items():
        if system.router is not None:
            path = system.router_path or f"{API_PREFIX}/{name}"
            streamed.update(path + one for one in system.streamed)
            app.include_router(system.router(), prefix=path, responses=PROBLEMS, tags=[name])
    app.add_api_route(
        f"{API_PREFIX}/openapi.json",
        lambda: description(app),
        dependencies=[require(Permission.READ)],
        include_in_schema=False,
    )
    app.include_router(pages.router, include_in_schema=False)
    app.include_router(_assets(pages.asset))
    refuse_open_routes(app)
    authenticator = Authenticator(store, auth or AuthConfig(), dsn)
    return Guard(app, authenticator, error_page=pages.error_page, streamed=frozenset(streamed))


def description(app: FastAPI) -> dict[str, Any]:
    """OpenAPI of all routes. FastAPI declares errors as JSON; here they are problem+json."""
    said = app.openapi()
    for operation in (one for path in said["paths"].values() for one in path.values()):
        for status, answer in operation["responses"].items():
            if status >= "400" and "application/json" in answer.get("content", {}):
                answer["content"] = {CONTENT_TYPE: answer["content"]["application/json"]}
    return said


def refuse_open_routes(app: FastAPI) -> None:
    """OperatorError for a route without `require`: every logged-in user could call it."""
    for route in app.routes:
        if isinstance(route, Mount):
            raise OperatorError(f"Below {route.path} is an application of its own.", next="a router, with require(…)")
    for path, _, needed in routes_of(app):
        if not needed and path not in OPEN_PATHS and path != ASSETS:
            raise OperatorError(f"The route {path} does not say what it needs.", next="dependencies=[require(…)]")


def routes_of(app: FastAPI) -> Iterator[tuple[str, frozenset[str], list[Requirement]]]:
    for route in iter_route_contexts(app.routes):
        if isinstance(route.original_route, Mount):
            continue
        dependant = getattr(route, "dependant", None)
        calls = [one.call for one in dependant.dependencies] if dependant else []
        needed = [call for call in calls if isinstance(call, Requirement)]
        yield route.path or "", frozenset(route.methods or ()), needed


def _application(dsn: str, store: PostgresStore, *, error_page: Any) -> FastAPI:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with store:
            yield

    app = FastAPI(
        title="Redrive",
        version="1",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
    )

    async def refused(request: Request, error: Exception) -> Response:
        return await refused_response(request, _refusal(error, dsn), error_page)

    for kind in (Refusal, RedriveError, TransientFailure, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, refused)
    app.add_exception_handler(Exception, refused)  # the middleware logs it too
    return app


def _refusal(error: Exception, dsn: str) -> Refusal:
    match error:
        case Refusal():
            return error
        case RequestValidationError():
            return _invalid(error)
        case HTTPException(status_code=status):
            code, detail = _PHRASES.get(status, ("REFUSED", "The request is refused."))
            return Refusal(status, code, detail, headers=error.headers)
    return refusal_of(error, dsn)


def _invalid(error: RequestValidationError) -> Refusal:
    """Names the field and the reason, never the value, which may be a secret."""
    errors = [
        {"field": ".".join(str(part) for part in one["loc"]), "detail": str(one["msg"])} for one in error.errors()[:20]
    ]
    return Refusal(422, "INVALID_VALUE", "The request has values that cannot be accepted.", errors=errors)


def _assets(find: Callable[[str], Any]) -> APIRouter:
    """Their names change with their content, so browsers may keep them."""
    router = APIRouter(include_in_schema=False)

    @router.get(ASSETS)
    async def asset(name: str) -> Response:
        found = find(name)
        if not found:
            raise HTTPException(404)
        return Response(found.body, media_type=found.content_type, headers={"Cache-Control": FOREVER})

    return router
