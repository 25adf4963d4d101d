"""The bodies of requests, made from the options of the verbs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field, JsonValue, StringConstraints, create_model

from redrive.operate.actions.model import Action, Option
from redrive.operate.api.schemas import Body, Printable, Why


def body_of(model: str, actions: Sequence[Action], *, base: type[Body] = Why, **more: Any) -> Any:
    shared = len(actions) > 1  # what one verb requires, the others do not take
    options = {option.name: _field(option, shared=shared) for action in actions for option in action.options}
    make: Any = create_model
    return make(model, __base__=base, **options, **more)


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
