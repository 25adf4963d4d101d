"""CSRF protection: a token in the form or in a header, and the browser's own `Origin` and `Sec-Fetch-Site`.

It applies to credentials that browsers send by themselves, not to API tokens. The secret is the session's, or a cookie
of its own before the login.
"""

from typing import Final
from urllib.parse import parse_qsl

from markupsafe import Markup
from starlette.requests import HTTPConnection, Request

from redrive.operate.web.auth_config import AuthConfig
from redrive.operate.web.authentication import Visitor
from redrive.operate.web.problems import Refusal
from redrive.operate.web.secrets import LENGTH_MAX, derived, equal, new_secret

FIELD: Final = "csrf"
HEADER: Final = "x-csrf-token"
NEW_SECRET: Final = "redrive.csrf_secret"  # noqa: S105 - key in the scope: a cookie to set
FIELDS_MAX: Final = 1000


def forgery_cookie(auth: AuthConfig) -> str:
    return "__Host-redrive_csrf" if auth.secure else "redrive_csrf"


def csrf_token(request: HTTPConnection) -> str:
    secret = _secret(request)
    if secret is None:
        secret = request.scope[NEW_SECRET] = new_secret()
    return derived(secret, "csrf")


def csrf_field(request: HTTPConnection) -> Markup:
    return Markup('<input type="hidden" name="{}" value="{}">').format(FIELD, csrf_token(request))


def check(request: Request, body: bytes, auth: AuthConfig) -> None:
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    host = request.headers.get("host", "")
    if origin is not None and not auth.knows_origin(origin, scheme=request.url.scheme, host=host):
        raise _forged("It comes from a page of another origin.")
    if site not in {None, "same-origin"}:
        raise _forged("It comes from a page of another site.")
    if origin is None and site is None:
        raise _forged("It does not say where it comes from (Origin).")
    secret, shown = _secret(request), _shown(request, body)
    if secret is None or shown is None or not equal(shown, derived(secret, "csrf")):
        raise _forged("Its token is missing or not that of this session; load the page again.")


def _secret(request: HTTPConnection) -> str | None:
    visitor: Visitor = request.scope["redrive.visitor"]
    if visitor.session is not None:
        return visitor.session
    if NEW_SECRET in request.scope:
        return str(request.scope[NEW_SECRET])
    cookie = request.cookies.get(forgery_cookie(request.scope["redrive.authenticator"].auth), "")
    return cookie if 0 < len(cookie) <= LENGTH_MAX else None


def _shown(request: Request, body: bytes) -> str | None:
    if (header := request.headers.get(HEADER)) is not None:
        return header
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        return None
    try:
        fields = parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=FIELDS_MAX)
    except ValueError:
        return None
    shown = [value for name, value in fields if name == FIELD]
    return shown[0] if len(shown) == 1 else None


def _forged(detail: str) -> Refusal:
    return Refusal(403, "FORGED_REQUEST", detail, denied=True)
