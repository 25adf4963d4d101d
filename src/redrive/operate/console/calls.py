"""One request to the console: who asks, in which database, and what the page before has sent.

Who may ask at all was decided by the guard of `redrive.operate.web`, before; what he may do is asked here once more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, urlencode
from uuid import UUID

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from redrive.errors import InvalidValue, NotAllowed, NotFound
from redrive.message import MessageId
from redrive.operate.console.jobs import TOKEN_MAX, Job, JobFunction, Jobs
from redrive.operate.web import Permission, Principal
from redrive.store.runtime.postgres import PostgresStore
from redrive.system import System

REASON_MAX: Final = 500  # characters, as on the command line
PERMISSIONS: Final[Mapping[Permission, str]] = {
    Permission.READ: "see what is here",
    Permission.ACT: "act on messages, groups and destinations",
    Permission.PAYLOAD: "read payloads",
    Permission.APPROVE: "approve what moves money",
    Permission.AUDIT: "read the audit",
    Permission.ADMIN: "manage the console",
}


@dataclass(eq=False)
class Call:
    """A request that was let in. form: empty but for a POST."""

    request: Request
    principal: Principal
    store: PostgresStore
    jobs: Jobs
    form: FormData = field(default_factory=FormData)

    @property
    def prefix(self) -> str:
        return str(self.request.scope.get("root_path", "")).rstrip("/")

    @property
    def query(self) -> Mapping[str, str]:
        return self.request.query_params

    @property
    def systems(self) -> Mapping[str, System]:
        """Those whose lists are shown."""
        found: Mapping[str, System] = self.request.app.state.systems
        return found

    def path(self, name: str) -> str:
        return str(self.request.path_params[name])

    def message_id(self) -> MessageId:
        """The one in the path; NotFound for what is no id, as for an id that is nobody's."""
        try:
            return MessageId(UUID(self.path("id")))
        except ValueError:
            raise NotFound(f"There is no message {self.path('id')[:100]!r}.") from None

    def given(self, name: str, *, limit: int = 200) -> str | None:
        """A part of the query, None where it is empty."""
        value = self.query.get(name, "").strip()
        if len(value) > limit:
            raise InvalidValue(f"{name} has {len(value)} characters; it must have at most {limit}.")
        return value or None

    def field(self, name: str, *, limit: int = 500) -> str | None:
        """A field of the form, None where it is empty."""
        value = self.form.get(name)
        words = value.strip() if isinstance(value, str) else ""
        if len(words) > limit:
            raise InvalidValue(f"{name} has {len(words)} characters; it must have at most {limit}.")
        return words or None

    def reason(self) -> str:
        """Why; every act has one."""
        words = self.field("reason", limit=REASON_MAX)
        if not words or not words.isprintable():
            raise InvalidValue("Say why, in a few words: the reason is kept in the audit.")
        return words

    def require(self, permission: Permission) -> None:
        if not self.principal.may(permission):
            raise NotAllowed(
                f"You may not {PERMISSIONS[permission]}.", next=f"a role with the permission {permission.value!r}"
            )

    def url(self, path: str, **query: Any) -> str:
        """A link inside the console, wherever it is mounted."""
        given = {name: str(value) for name, value in query.items() if value not in (None, "")}
        return f"{self.prefix}{quote(path, safe='/:')}" + (f"?{urlencode(given)}" if given else "")

    def here(self, **changes: Any) -> str:
        """This page with some of its query changed."""
        given = {**self.query, **changes}
        return self.url(self.request.scope["path"].removeprefix(self.prefix) or "/", **given)

    async def carry_out(self, title: str, doing: JobFunction, *, back: str, total: int = 0) -> Response:
        """Do what the form asks for, once, and go to the page that shows what became of it."""
        job = await self.jobs.begin(self._form_token(), self.principal.name, title, doing, total=total)
        return redirect(job.goes_to if job.goes_to and not job.failed else _with_job(back, job))

    def _form_token(self) -> str:
        token = self.field("key", limit=TOKEN_MAX)
        if token is None:
            raise InvalidValue("The form is not whole; load the page again.")
        return token


Page = Callable[[Call], Awaitable[Response]]


def redirect(url: str) -> Response:
    return RedirectResponse(url, status_code=303)


def _with_job(back: str, job: Job) -> str:
    return f"{back}{'&' if '?' in back else '?'}{urlencode({'job': job.token})}"
