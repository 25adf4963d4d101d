"""One request to the console: its principal, its store, and the fields of its form.

`redrive.operate.web` has authenticated it already; the permission for an action is checked here once more.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode
from uuid import UUID

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from redrive.errors import InvalidValue, NotAllowed, NotFound
from redrive.message import MessageId
from redrive.operate import cursors
from redrive.operate.actions.model import Action
from redrive.operate.actions.results import ActResult, raise_refused
from redrive.operate.console.jobs import JOB_SECONDS_MAX, TOKEN_MAX, Job, JobFunction, Jobs
from redrive.operate.web.csrf import FIELD as CSRF_FIELD
from redrive.operate.web.dependencies import authenticator
from redrive.operate.web.idempotency import RequestKey, digest
from redrive.operate.web.principal import Permission, Principal
from redrive.store.reads.models import LIMIT_MAX
from redrive.store.runtime.postgres import PostgresStore
from redrive.system import System
from redrive.who import REASON_MAX, Who, one_line_text

Position = TypeVar("Position")
FIELD_MAX: Final = 1000  # characters of one field
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
        found: Mapping[str, System] = self.request.app.state.systems
        return found

    def path(self, name: str) -> str:
        return str(self.request.path_params[name])

    def message_id(self) -> MessageId:
        """The one in the path; NotFound for what is no id, as for an id of no message."""
        try:
            return MessageId(UUID(self.path("id")))
        except ValueError:
            raise NotFound(f"There is no message {self.path('id')[:100]!r}.") from None

    def given(self, name: str, *, limit: int = 200) -> str | None:
        return _bounded(name, self.query.get(name), limit)

    def position(self, name: str, kind: Callable[..., Position]) -> Position | None:
        text = self.given(name, limit=cursors.LENGTH_MAX)
        try:
            return cursors.decode(kind, text, bare=True)
        except InvalidValue:
            raise InvalidValue(f"{text!r} is no position; use the link that a page ends with.") from None

    def field(self, name: str, *, limit: int = 500) -> str | None:
        return _bounded(name, self.form.get(name), limit)

    def reason(self) -> str:
        words = self.form.get("reason")
        if not isinstance(words, str) or not words.strip():
            raise InvalidValue("Say why, in a few words: the reason is kept in the audit.")
        return one_line_text("reason", words, most=REASON_MAX)

    def who(self) -> Who:
        return Who(actor=self.principal.name, reason=self.reason())

    def options(self, action: Action) -> dict[str, Any]:
        """The values of a verb's options; the permission for the verb is checked first."""
        self.require(action.permission)
        given = {one.name: one.parse(self.field(one.name, limit=FIELD_MAX)) for one in action.options}
        action.require_one(given)
        return given

    def require(self, permission: Permission) -> None:
        if not self.principal.may(permission):
            raise NotAllowed(
                f"You may not {PERMISSIONS[permission]}.", next=f"a role with the permission {permission.value!r}"
            )

    def url(self, path: str, **query: Any) -> str:
        given = {name: str(value) for name, value in query.items() if value not in (None, "")}
        return f"{self.prefix}{quote(path, safe='/:')}" + (f"?{urlencode(given)}" if given else "")

    def here(self, **changes: Any) -> str:
        given = {**self.query, **changes}
        return self.url(self.request.scope["path"].removeprefix(self.prefix) or "/", **given)

    async def carry_out(self, title: str, doing: JobFunction, *, back: str, total: int = 0) -> Response:
        """Do what the form asks for, once, and go to the page that shows what became of it."""
        token = self.field("form_token", limit=TOKEN_MAX)
        if token is None:
            raise InvalidValue("The form is not whole; load the page again.")
        store = authenticator(self.request).console_store
        key = RequestKey(store, self.principal, token, self._fingerprint(), JOB_SECONDS_MAX)
        job = await self.jobs.begin(token, self.principal.name, title, doing, total=total, key=key)
        return redirect(job.goes_to if job.goes_to and not job.failed else self.url(back, job=token))

    async def carry_out_on_many(
        self, action: Action, ids: Sequence[MessageId], *, back: str, size: int = LIMIT_MAX, **given: Any
    ) -> Response:
        """The same for many messages, so many at a time."""
        who = self.who()

        async def doing(job: Job) -> None:
            for start in range(0, len(ids), size):
                job.add(await action.call(self.store, ids[start : start + size], who, **given))

        return await self.carry_out(action.said, doing, back=back, total=len(ids))

    async def carry_out_on_one(self, title: str, act: Callable[[], Awaitable[ActResult]], *, back: str) -> Response:
        """The same for one message. ApproverNeeded where the second person has to be an approver."""
        results: list[ActResult] = []

        async def doing(job: Job) -> None:
            results.append(await act())
            job.add(results)

        response = await self.carry_out(title, doing, back=back, total=1)
        for result in results:
            if result.needs_approver:
                raise_refused(result)
        return response

    def _fingerprint(self) -> bytes:
        given = [(name, value) for name, value in self.form.multi_items() if name not in (CSRF_FIELD, "form_token")]
        return digest(self.request.scope["path"], *(f"{name}={value}" for name, value in given))


Page = Callable[[Call], Awaitable[Response]]


def _bounded(name: str, value: object, limit: int) -> str | None:
    words = value.strip() if isinstance(value, str) else ""
    if len(words) > limit:
        raise InvalidValue(f"{name} has {len(words)} characters; it must have at most {limit}.")
    return words or None


def redirect(url: str) -> Response:
    return RedirectResponse(url, status_code=303)
