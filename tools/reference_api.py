"""Reference pages that are read from the objects: answers, and the public names with their fields.

A dataclass explains its fields in its docstring, `name: what it is.`; from that the tables are made. Used by
`tools.reference`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cached_property
from itertools import zip_longest
from typing import Any, Final

import redrive
from redrive import answers
from redrive.app import App, Destination, DestinationOptions
from redrive.message import Attempt, NewMessage, Receipt, Status
from redrive.policy import Backoff, Breaker, Policy, Rules
from redrive.transports import network_errors
from redrive.transports.http import CloudEvents, Egress, HttpTransport
from tools.reference_codes import CODES, SMTP_CODES
from tools.reference_text import paragraph, table, words

ANSWERS: Final = (answers.Delivered, answers.Advance, answers.Retryable, answers.Terminal, answers.Unknown)
LOOKUP_ANSWERS: Final = (answers.Found, answers.Absent, answers.CannotTell)
API: Final = (NewMessage, Receipt, Status, Attempt, Policy, Backoff, Breaker)
FUNCTIONS: Final = (
    redrive.enqueue,
    redrive.enqueue_many,
    redrive.status,
    redrive.wait,
    redrive.cancel,
    redrive.key,
    redrive.complete,
    App.duty,
)
# Options of a destination that no dataclass explains.
OPTIONS: Final = {
    "limit_key": "names the part of the destination that a message goes to, such as its tenant or its host: breaker,"
    " rests, rate and the bug breaker apply to that part. None: to the whole destination. Not for money.",
    "name": "1 to 100 characters; what `enqueue` calls it.",
    "policy": "budgets and delays; None = `Policy()`.",
    "lookup": "asks the destination whether it has it: `Found`, `Absent` or `CannotTell`.",
    "validate": "looks at the message before anything goes out; raises `Terminal` where it cannot be sent.",
    "schema": "the type of its payloads: a pydantic model, a dataclass, a TypedDict; judged before anything goes out,"
    " and read as `message.data`.",
    "in_doubt": 'what follows an attempt whose outcome is unknown; None = "lookup" where there is one, "hold" for'
    ' `money` without `token_ttl_seconds`, else "resend".',
    "on_dead": "what a dead message does to its ordering key: `halt` it, or let it `continue`.",
    "breaker": "when it is taken to be down, and left alone; True = `Breaker()`, False = it has none.",
    "classify": "exception type to an answer, or to a function of the exception that gives one.",
}
HTTP_OPTIONS: Final = {
    "method": "POST, PUT, PATCH or DELETE.",
    "signer": "signs by Standard Webhooks: `Signer([secret, …])`, the newest first; `whsec_` (v1) or `whsk_` (v1a).",
    "cloudevents": "sends it as a CloudEvent.",
    "egress": "where requests may go; None = `Egress()`.",
    "connect_seconds": "how long to wait for a connection.",
    "connections": "to one host, at most.",
}


# answers


def answers_page() -> Iterator[str]:
    yield "# Answers"
    yield from paragraph(
        """A handler returns or raises one of five; returning `None` is `Delivered()`. What follows from each is in
        [states](../states.md)."""
    )
    for kind in ANSWERS:
        yield from described(kind)
    yield from ("", "## What a lookup may say")
    for looked_up in LOOKUP_ANSWERS:
        yield from described(looked_up, level=3)
    yield from _network_errors()
    yield from ("", "## Codes that Redrive itself gives")
    yield from paragraph("Every other code is one that your handler, its `classify` or its `lookup` gave.")
    yield ""
    yield from table(("code", "it means"), [(f"`{code}`", meaning) for code, meaning in sorted(CODES.items())])
    yield from ("", "## Codes of the SMTP transport")
    yield from paragraph("Any other refusal is `SMTP_` and the number: 4xx is `Retryable`, 5xx `Terminal`.")
    yield ""
    rows = [(f"`{code}`", f"`{answer}`", meaning) for code, (answer, meaning) in sorted(SMTP_CODES.items())]
    yield from table(("code", "answer", "it means"), rows)


def _network_errors() -> Iterator[str]:
    known: Any = vars(network_errors)
    yield from ("", "## Exceptions that are known")
    yield from paragraph(
        """Looked up by the type of the exception and of its bases, after the destination's own `classify`. One that is
        in neither is a bug: `Unknown`, code `UNCLASSIFIED`."""
    )
    yield ""
    rows = [(f"`{name}`", _phase(phase), f"`{code}`") for name, (phase, code) in sorted(known["_BY_TYPE"].items())]
    yield from table(("exception", "answer", "code"), rows)
    yield from paragraph(
        f"""An error with a response ({words(known["_STATUS"])}) is judged by its status:
        {_numbers(known["_UNKNOWN_STATUS"])} is `Unknown`; {_numbers(known["_RETRYABLE_STATUS"])} and every other 5xx
        are `Retryable` with the response's `Retry-After`; the rest is `Terminal`. The code is `HTTP_` and the status.
        A wrapper
        ({words(known["_WRAPPERS"])}) is judged by what it wraps. Any other `OSError` is judged by its number: one of
        connecting is `CONNECTION_REFUSED`, one of reading or writing `CONNECTION_LOST`."""
    )


def _phase(phase: str) -> str:
    return "`Retryable`, destination down" if phase == network_errors.CONNECT else "`Unknown`"


def _numbers(known: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(known)))


# API


def api_page() -> Iterator[str]:
    yield "# Public names"
    yield from paragraph(f"`import redrive` gives {words(redrive.__all__)}.")
    yield from ("", "## Functions", "", "```python")
    for function in FUNCTIONS:
        yield from _signature(function)
        yield f"    # {(inspect.getdoc(function) or '').splitlines()[0]}"
    yield "```"
    yield from paragraph(
        """`aenqueue`, `aenqueue_many`, `astatus`, `wait_async`, `acancel` and `acomplete` are the same for an
        asynchronous connection. The parameters of `enqueue` are the fields of `NewMessage`."""
    )
    yield from ("", "## App.destination")
    yield from paragraph(
        """`@app.destination(name, …)` declares a handler, `def` or `async def`; what is wrong with it is refused at
        import."""
    )
    yield ""
    rows = [_option(parameter) for parameter in _destination_parameters()]
    yield from table(("option", "type", "default", "meaning"), rows)
    for kind in API:
        yield from described(kind)
    yield from _http()


def _http() -> Iterator[str]:
    yield from ("", "## HttpTransport", "", sentence(HttpTransport))
    yield from paragraph("From `redrive.transports.http`, with the extra `redrive[http]`; declared by `app.transport`.")
    yield ""
    meanings = HTTP_OPTIONS | _meanings(HttpTransport)
    rows = []
    for parameter in _parameters(HttpTransport.__init__):
        default = "required" if parameter.default is parameter.empty else f"`{_value(parameter.default)}`"
        meaning = meanings[parameter.name]
        rows.append((f"`{parameter.name}`", f"`{_type(parameter.annotation)}`", default, meaning))
    yield from table(("option", "type", "default", "meaning"), rows)
    for kind in (Egress, CloudEvents):
        yield from described(kind, level=3)


def _destination_parameters() -> Iterator[inspect.Parameter]:
    """Its own, then the keywords that it shares with `App.transport`."""
    yield from (one for one in _parameters(App.destination) if one.kind is not one.VAR_KEYWORD)
    defaults = {field.name: field.default for kind in (Rules, Destination) for field in fields(kind)}
    # Defaults that depend on other options.
    decided = {"breaker": False, "in_doubt": None, "lookup_after_seconds": None, "policy": None}
    for name, annotation in DestinationOptions.__annotations__.items():
        default = {**defaults, **decided}[name]
        shown = annotation.__forward_arg__ if hasattr(annotation, "__forward_arg__") else annotation
        yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=shown)


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return [parameter for name, parameter in inspect.signature(function).parameters.items() if name != "self"]


def _signature(function: Callable[..., Any]) -> Iterator[str]:
    """As it is written: one parameter a line where there are many."""
    own = _parameters(function)
    star = next((i for i, parameter in enumerate(own) if parameter.kind is parameter.KEYWORD_ONLY), None)
    names = [_parameter(parameter) for parameter in own]
    if star is not None:
        names.insert(star, "*")
    head = f"{function.__qualname__}("
    if len(names) < 5:
        yield f"{head}{', '.join(names)})"
        return
    yield head
    yield from (f"    {name}," for name in names)
    yield ")"


def _parameter(parameter: inspect.Parameter) -> str:
    default = "" if parameter.default is parameter.empty else f" = {_value(parameter.default)}"
    if parameter.kind is parameter.VAR_KEYWORD:
        return f"**{parameter.name}: {parameter.annotation}"
    return f"{parameter.name}: {parameter.annotation}{default}"


def _option(parameter: inspect.Parameter) -> tuple[str, ...]:
    meanings = _meanings(Rules) | _meanings(Destination) | _meanings(DestinationOptions) | OPTIONS
    default = "required" if parameter.default is parameter.empty else f"`{_value(parameter.default)}`"
    return f"`{parameter.name}`", f"`{_type(parameter.annotation)}`", default, meanings[parameter.name]


def described(kind: type, *, level: int = 2) -> Iterator[str]:
    """A dataclass: its sentence, and its fields and properties with type, default and meaning."""
    yield from ("", f"{'#' * level} {kind.__name__}", "", sentence(kind))
    shown = [field for field in fields(kind) if field.init and field.name not in {"completion", "earlier"}]
    meanings = _meanings(kind)
    rows = [(f"`{f.name}`", f"`{_type(f.type)}`", _default(f), meanings.get(f.name, "")) for f in shown]
    rows += [(f"`{name}`", "", "", meanings.get(name) or words) for name, words in _members(kind).items()]
    if rows:
        yield ""
        yield from table(("field", "type", "default", "meaning"), rows)


def _members(kind: type) -> dict[str, str]:
    """Properties and methods that a user may call, with the first line of their docstrings."""
    public = {name: member for name, member in vars(kind).items() if not name.startswith("_")}
    found: dict[str, str] = {}
    for name, member in public.items():
        if isinstance(member, property | cached_property):
            found[name] = (inspect.getdoc(member) or "").split("\n")[0]
        elif inspect.isfunction(member):
            found[f"{name}()"] = (inspect.getdoc(member) or "").split("\n")[0]
    return found


def sentence(kind: type) -> str:
    """The docstring up to its fields, as one paragraph."""
    text = _text(kind)
    first = next(_marks(kind), None)
    return (text[: first.start()] if first else text).strip()


def _meanings(kind: type) -> dict[str, str]:
    """`name: what it is.` for each field that the docstring explains, several on a line included."""
    found: dict[str, str] = {}
    marks = list(_marks(kind))
    for mark, after in zip_longest(marks, marks[1:]):
        meaning = _text(kind)[mark.end() : after.start() if after else None].strip()
        found |= dict.fromkeys(mark.group(1).split(", "), meaning)
    return found


def _marks(kind: type) -> Iterator[re.Match[str]]:
    """Where the docstring begins to explain a field, or several at once: always at the beginning of a sentence."""
    if is_dataclass(kind):
        own = [field.name for field in fields(kind)] + list(_members(kind))
    else:
        own = [parameter.name for parameter in _parameters(kind.__init__)]  # type: ignore[misc]
    names = "|".join(map(re.escape, own))
    return re.finditer(rf"(?<=\. )((?:{names})(?:, (?:{names}))*): ", _text(kind)) if names else iter(())


def _text(kind: type) -> str:
    return " ".join((inspect.getdoc(kind) or "").split())


def _type(annotation: Any) -> str:
    return str(annotation).replace("|", "\\|")


def _default(field: Any) -> str:
    if field.default_factory is not MISSING:
        return f"`{_value(field.default_factory())}`"
    return "required" if field.default is MISSING else f"`{_value(field.default)}`"


def _value(value: Any) -> str:
    return repr(value.value if isinstance(value, Enum) else value)
