"""Typed payloads: what `schema=` of a destination means, on both sides.

Any type that pydantic can judge. `write` turns a value into what is enqueued, `read` the bytes of a message into a
value; both refuse with the field and the rule, never with the value (G-15). pydantic is imported with the first schema.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from redrive import redact
from redrive.errors import InvalidPayload, InvalidValue
from redrive.produce.payload import canonical_json


class Schema:
    """name: of the destination, for refusals."""

    def __init__(self, name: str, kind: Any) -> None:
        from pydantic import TypeAdapter
        from pydantic.errors import PydanticUserError

        self.kind = kind
        self._name = name
        self._called = getattr(kind, "__name__", str(kind))
        try:
            self._adapter = TypeAdapter(kind)
        except PydanticUserError as error:
            reason = str(error).splitlines()[0]
            raise InvalidValue(f"schema of {name!r} is {self._called}, which cannot be used: {reason}") from error
        try:
            self._fields = frozenset(_field_names(self._adapter.json_schema()))
        except PydanticUserError:  # a type that JSON Schema cannot describe: then no name is known to be one
            self._fields = frozenset()

    def read(self, body: bytes) -> Any:
        from pydantic import ValidationError

        try:
            return self._adapter.validate_json(body)
        except ValidationError as error:
            raise self._refusal(error.errors(include_url=False, include_input=False, include_context=False)) from None

    def write(self, value: Any) -> Any:
        """The value as JSON that `read` takes: what could not be read again is refused."""
        from pydantic import ValidationError
        from pydantic_core import PydanticSerializationError

        try:
            valid = self._adapter.validate_python(value)
            written = self._adapter.dump_python(valid, mode="json", by_alias=True, round_trip=True)
        except ValidationError as error:
            raise self._refusal(error.errors(include_url=False, include_input=False, include_context=False)) from None
        except PydanticSerializationError as error:
            raise InvalidPayload(f"payload cannot be written as {self._called} of {self._name!r}.") from error
        self.read(canonical_json(written))
        return written

    def _refusal(self, errors: Sequence[Mapping[str, Any]]) -> InvalidPayload:
        first = errors[0]
        return InvalidPayload(
            redact.broken_rule(
                f"payload is no {self._called} of {self._name!r}",
                path=[step if step in self._fields or isinstance(step, int) else None for step in first["loc"]],
                rule=first["type"],
                others=len(errors) - 1,
            )
        )


def _field_names(schema: Any) -> Iterator[str]:
    """Names that the type itself gives to fields: code. Other keys of a payload are data."""
    if isinstance(schema, Mapping):
        properties = schema.get("properties")
        if isinstance(properties, Mapping):
            yield from map(str, properties)
        for part in schema.values():
            yield from _field_names(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from _field_names(part)
