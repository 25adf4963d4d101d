"""What the routes of the API share: what each needs, bodies with their bounds, and answers that are no read model."""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import Depends, Header, Query
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, StringConstraints, create_model

from redrive.operate import cursors
from redrive.operate.actions.model import Action, Option
from redrive.operate.actions.results import ActResult, Outcome, count
from redrive.operate.web.dependencies import require
from redrive.operate.web.principal import Permission, Principal
from redrive.store.reads.models import LIMIT_MAX
from redrive.who import REASON_MAX, Who

ITEMS_SHOWN_MAX = 100  # of a step over all that a filter selects


def _printable(value: str) -> str:
    if not value.isprintable():
        raise ValueError("it has characters that cannot be printed")
    return value


Printable = AfterValidator(_printable)
Reason = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=REASON_MAX), Printable,
    Field(description="Why; kept in the audit.", examples=["INC-7"]),
]  # fmt: skip
Word = Annotated[str, StringConstraints(min_length=1, max_length=100), Printable]
Key = Annotated[str, StringConstraints(min_length=1, max_length=1000), Printable]
After = Annotated[str | None, Query(max_length=cursors.LENGTH_MAX, description="The `next` of the page before.")]
Limit = Annotated[int, Field(ge=1, le=LIMIT_MAX, description="Rows of a page.")]
Ids = Annotated[list[UUID], Field(min_length=1, max_length=LIMIT_MAX, description="Messages, by their ids.")]


# what a route needs

_Key = Annotated[
    str,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]+$",
        description="New for each change. Asked for again with the same one, the answer is the same.",
    ),
]


def _key(key: _Key) -> None:
    """`redrive.operate.web.idempotency` has looked at it already."""
    del key


def changes(permission: Permission, *, all_tenants: bool = False) -> list[Any]:
    """The dependencies of a route that changes something: the permission, and an Idempotency-Key."""
    return [require(permission, all_tenants=all_tenants), Depends(_key)]


READS: Final = [require(Permission.READ)]
READS_ALL: Final = [require(Permission.READ, all_tenants=True)]
ACTS: Final = changes(Permission.ACT)
ACTS_ON_ALL: Final = changes(Permission.ACT, all_tenants=True)


# bodies of requests


class Body(BaseModel):
    """Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


class Why(Body):
    reason: Reason

    def who(self, principal: Principal) -> Who:
        """The actor is the caller, whatever the request says."""
        return Who(actor=principal.name, reason=self.reason)


def body_of(model: str, actions: Sequence[Action], *, base: type[Body] = Why, **more: Any) -> Any:
    """The body of a request, made from the options of the verbs that it may name."""
    shared = len(actions) > 1  # what one verb requires, the others do not take
    options = {option.name: _field(option, shared=shared) for action in actions for option in action.options}
    make: Any = create_model
    return make(model, __base__=base, **options, **more)


def names_of(enum: str, actions: Iterable[Action]) -> Any:
    """An enum of verbs, for a path or a body."""
    return StrEnum(enum, {action.name.upper(): action.name for action in actions})


def _field(option: Option, *, shared: bool) -> tuple[Any, Any]:
    if option.required and not shared:
        return _type(option), ...
    default = option.default if option.http_default is None else option.http_default
    return (_type(option) if default is not None else _type(option) | None), default


def _type(option: Option) -> Any:
    if option.type is list:
        operations = list[dict[str, JsonValue]]
        return Annotated[operations, Field(min_length=1, max_length=int(option.most), description=option.help)]
    if option.type is str:
        bounds = StringConstraints(strip_whitespace=True, min_length=1, max_length=int(option.most))
        return Annotated[str, bounds, Printable, Field(description=option.help)]
    if option.type in (int, float):
        most = option.most if option.http_most is None else option.http_most
        least: dict[str, Any] = {"gt" if option.above else "ge": option.least}
        return Annotated[option.type, Field(**least, le=most, description=option.help)]
    return Annotated[option.type, Field(description=option.help)]


def given(action: Action, body: Any) -> dict[str, Any]:
    """The values of a verb's options; those of other verbs in the same body are left out."""
    values = {option.name: getattr(body, option.name) for option in action.options}
    action.require_one(values)
    return values


# answers


class Acted(BaseModel):
    """What became of each message. items: of many those first that were not done, and a hundred at most."""

    done: int
    asked: int
    would: int
    refused: int
    not_found: int
    items: Sequence[ActResult]


def acted(results: Sequence[ActResult]) -> Acted:
    counted = {one.value: number for one, number in count(results).items()}
    worst = sorted(results, key=lambda one: one.outcome is Outcome.DONE) if len(results) > LIMIT_MAX else results
    return Acted(**counted, items=worst[:ITEMS_SHOWN_MAX] if len(results) > LIMIT_MAX else results)


class Made(BaseModel):
    id: UUID


class MadeToken(Made):
    """secret: shown now and never again; None in a repeated answer."""

    secret: str | None


class Me(BaseModel):
    name: str
    role: str
    tenant: str
    permissions: Sequence[str]
