"""Nothing of a message's data reaches a text, a context or a stack; and whatever is left can be stored (G-15)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive import redact
from redrive.redact import HIDDEN, TEXT_MAX

pytestmark = pytest.mark.req("G-15")

# What somebody may write into an explanation, and what of it must not be seen again.
PLANTED = [
    ("could not reach jane.doe@example.com in time", ["jane", "doe", "example.com"]),
    ("card 4111111111111111 declined", ["4111"]),
    ("card 4111 1111 1111 1111 declined", ["4111", "1111"]),
    ("card 4111-1111-1111-1111 declined", ["4111"]),
    ("call 0171 123 4567 first", ["0171", "123", "4567"]),
    ("IBAN DE89 3704 0044 0532 0130 00 is closed", ["DE89", "3704", "0532", "0130"]),
    ("Authorization: Bearer eyJhbGciOi.J9eyJz.SflKxw", ["eyJ", "Sfl"]),
    ("sent Bearer abcdefghijklmnop to it", ["abcdef"]),
    ("Basic dXNlcjpwYXNz was refused", ["dXNlcjpwYXNz"]),
    ("password: hunter is wrong", ["hunter"]),
    ("api_key=sk_live_51Hxyz was refused", ["sk_live", "51Hxyz"]),
    ("GET https://bob:hunter2@shop.example/pay?card=4111&name=Jane failed", ["bob", "hunter2", "4111", "Jane"]),
    ('refused {"name": "Jane Doe", "iban": "DE89"} at once', ["Jane", "Doe", "DE89", "iban"]),
    ('Doe", "street": "Elm Street", "zip', ["Doe", "Elm", "street"]),
    ('expected "Jane Ann Doe" to exist', ["Jane", "Ann", "Doe"]),
    ("expected 'Jane Ann Doe' to exist", ["Jane", "Ann", "Doe"]),
    ("expected `Jane Ann Doe` to exist", ["Jane", "Ann", "Doe"]),
    ("expected “Jane Ann Doe” to exist", ["Jane", "Ann", "Doe"]),
    ("expected «Jane Ann Doe» to exist", ["Jane", "Ann", "Doe"]),
    ("expected <Jane Ann Doe> to exist", ["Jane", "Ann", "Doe"]),
    ("expected [Jane Ann Doe] to exist", ["Jane", "Ann", "Doe"]),
    ("expected (Jane Ann Doe) to exist", ["Jane", "Ann", "Doe"]),
    ('the prompt "Summarise the divorce papers of Jane" was refused', ["Summarise", "divorce", "Jane"]),
    ("x" * 30 + " is no word", ["x" * 25]),
    ("Jane.Doe and jane_doe and JaneDoe7", ["Jane", "jane_doe"]),
    ("token 550e8400-e29b-41d4-a716-446655440000 unknown", ["550e8400", "4466"]),
    ("a" * (4 * TEXT_MAX - 10) + ' "Jane Ann Doe"', ["Jane", "Ann", "Doe"]),
]


@pytest.mark.parametrize(("given_text", "secrets"), PLANTED, ids=lambda value: str(value)[:24])
def test_planted_secret_is_in_no_text(given_text: str, secrets: list[str]) -> None:
    shown = redact.text(given_text)
    assert not [secret for secret in secrets if secret.lower() in shown.lower()]


@pytest.mark.parametrize(("given_text", "secrets"), PLANTED, ids=lambda value: str(value)[:24])
def test_planted_secret_is_in_no_context(given_text: str, secrets: list[str]) -> None:
    values: dict[str, Any] = {
        "payload": given_text,
        "name": given_text,
        "upstream_code": given_text,
        "request_id": {"nested": given_text},
        "reference": [given_text],
        "error_type": given_text.encode(),
    }
    shown = json.dumps(redact.context(values), ensure_ascii=False)
    assert not [secret for secret in secrets if secret.lower() in shown.lower()]


@pytest.mark.parametrize(("given_text", "secrets"), PLANTED, ids=lambda value: str(value)[:24])
def test_planted_secret_is_in_no_stack(given_text: str, secrets: list[str]) -> None:
    shown = redact.stack(_raised(given_text))
    assert not [secret for secret in secrets if secret.lower() in shown.lower()]
    assert shown.count("caused by") == 2


def _raised(secret: str) -> BaseException:
    """An exception with the secret in its text, in its locals, in its cause and in what it happened during."""

    def innermost(payload: str) -> None:
        local = {"password": payload}
        raise KeyError(local["password"])

    def outermost() -> None:
        try:
            try:
                innermost(secret)
            except KeyError as error:
                raise ValueError(f"bad value {secret}") from error
        except ValueError:
            raise RuntimeError(secret)  # noqa: B904 - the context without a cause is what is tested

    with pytest.raises(RuntimeError) as raised:
        outermost()
    raised.value.add_note(secret)
    return raised.value


def test_stack_has_types_and_places() -> None:
    shown = redact.stack(_raised("secret"))
    assert [line for line in shown.splitlines() if not line.startswith("  ")] == [
        "RuntimeError",
        "caused by ValueError",
        "caused by KeyError",
    ]
    places = [line for line in shown.splitlines() if line.startswith("  ")]
    assert all(re.fullmatch(r"  \S+/unit/test_redact\.py:\d+ in \w+", line) for line in places)
    assert places[-1].endswith("in innermost")


def test_stack_says_nothing_of_the_machine() -> None:
    assert not re.search(r"(^|\s)/", redact.stack(_raised("secret")))


def test_stack_leaves_out_a_suppressed_context() -> None:
    def suppress() -> None:
        try:
            raise KeyError("a")
        except KeyError:
            raise ValueError("b") from None

    with pytest.raises(ValueError, match="b") as raised:
        suppress()
    assert "KeyError" not in redact.stack(raised.value)


def test_stack_of_a_ring_of_causes_ends() -> None:
    first, second = ValueError("a"), KeyError("b")
    first.__cause__, second.__cause__ = second, first
    assert redact.stack(first) == "ValueError\ncaused by KeyError"


def test_stack_of_a_deep_recursion_is_cut() -> None:
    def fall(depth: int) -> None:
        if depth == 0:
            raise ValueError("bottom")
        fall(depth - 1)

    with pytest.raises(ValueError, match="bottom") as raised:
        fall(200)
    assert redact.stack(raised.value).count("\n") == redact.STACK_FRAMES_MAX


def test_error_type_is_module_and_name() -> None:
    assert redact.error_type(ValueError("secret")) == "ValueError"
    assert redact.error_type(json.JSONDecodeError("secret", "doc", 0)) == "json.decoder.JSONDecodeError"


@pytest.mark.parametrize(
    "plain",
    [
        "connection refused",
        "HTTP_503 after 12 seconds",
        "read timed out, giving up.",
        "can wait 2.5 seconds; then stop",
    ],
)
def test_plain_words_are_kept(plain: str) -> None:
    assert redact.text(plain) == plain


def test_hidden_parts_run_together() -> None:
    assert redact.text("user a@b.c and d@e.f f@g.h failed") == f"user {HIDDEN} and {HIDDEN} failed"


@given(st.text(st.characters(), max_size=200))
def test_redaction_of_a_redacted_text_changes_nothing(value: str) -> None:
    once = redact.text(value)
    assert redact.text(once) == once


@given(
    st.lists(st.sampled_from(["jane@example.com", '"Jane Doe"', "4111 1111", "refused", "by", "peer", "'", "{", "\n"]))
)
def test_no_arrangement_of_words_and_secrets_shows_a_secret(parts: list[str]) -> None:
    shown = redact.text(" ".join(parts))
    assert not re.search(r"jane|doe|example|4111|1111", shown, re.IGNORECASE)


def test_context_keeps_the_fields_of_the_list_only() -> None:
    values = {"attempt": 3, "stage": "first", "in_doubt": True, "token": UUID(int=5), "email": "a@b.c", "Attempt": 4}
    kept = {"attempt": 3, "stage": "first", "in_doubt": True, "token": str(UUID(int=5))}
    assert redact.context(values) == kept


@given(st.dictionaries(st.sampled_from(sorted(redact.CONTEXT_FIELDS)), st.text() | st.integers() | st.none()))
def test_context_is_short_plain_values(values: dict[str, Any]) -> None:
    kept = redact.context(values)
    assert kept.keys() == values.keys()
    assert all(not isinstance(value, str) or len(value) <= 200 for value in kept.values())


class Unshowable:
    def __str__(self) -> str:
        raise RuntimeError("no")


STORABLE: list[Callable[[object], str]] = [redact.storable, redact.text]


@pytest.mark.parametrize("make", STORABLE)
@given(value=st.text(st.characters(), max_size=300) | st.binary() | st.floats() | st.none())
def test_anything_can_be_made_storable(make: Callable[[object], str], value: object) -> None:
    made = make(value)
    made.encode("utf-8")
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", made)
    assert len(made) <= TEXT_MAX


@pytest.mark.parametrize("make", STORABLE)
def test_object_that_cannot_be_shown_is_named(make: Callable[[object], str]) -> None:
    assert make(Unshowable()) == "Unshowable"


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ("a\x00b", "a\N{REPLACEMENT CHARACTER}b"),
        ("a\ud800b", "a\N{REPLACEMENT CHARACTER}b"),
        ("a\x1bb\x7f", "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}"),
        ("a\tb\nc", "a\tb\nc"),
        ("🚚" * 3000, "🚚" * TEXT_MAX),
        ("x" * TEXT_MAX, "x" * TEXT_MAX),
        ("x" * (TEXT_MAX + 1), "x" * TEXT_MAX),
        (7, "7"),
    ],
    ids=lambda value: ascii(value)[:12],
)
def test_storable_replaces_what_postgresql_refuses_and_cuts_by_characters(value: object, stored: str) -> None:
    assert redact.storable(value) == stored


def test_text_is_cut_after_it_was_redacted() -> None:
    shown = redact.text("word " * 1000)
    assert len(shown) == TEXT_MAX
    assert set(shown.split()) <= {"word"}
