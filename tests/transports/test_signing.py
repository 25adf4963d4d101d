"""Signatures that every receiver of Standard Webhooks verifies, also while a secret is being rotated."""

from __future__ import annotations

import base64
import time
from datetime import UTC, datetime

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from redrive.errors import InvalidValue
from redrive.transports.http import CloudEvents, HttpTransport, Signer
from tests.support import messages as m
from tests.transports.servers import HERE, serving

OLD, NEW = ("whsec_" + base64.b64encode(bytes([number]) * 32).decode() for number in (1, 2))
BODY = '{"to":"ä"}'.encode()


def headers(*secrets: str, body: bytes = BODY) -> dict[str, str]:
    return Signer(secrets).headers(id="msg-1", timestamp=int(time.time()), body=body)


@pytest.mark.parametrize("known", [OLD, NEW])
def test_while_a_secret_is_rotated_whoever_knows_either_can_verify(known: str) -> None:
    assert Webhook(known).verify(BODY, headers(NEW, OLD)) == {"to": "ä"}


def test_the_signature_is_the_one_of_the_specification() -> None:
    at = datetime(2026, 1, 2, tzinfo=UTC)
    made = Signer([OLD]).headers(id="msg-1", timestamp=int(at.timestamp()), body=BODY)
    assert made["webhook-signature"] == Webhook(OLD).sign("msg-1", at, BODY.decode())


def test_what_was_changed_or_is_old_or_signed_by_others_is_refused_by_the_receiver() -> None:
    made = headers(NEW)
    for body, values, secret in (
        (b'{"to":"b"}', made, NEW),
        (BODY, made, OLD),
        (BODY, {**made, "webhook-id": "msg-2"}, NEW),
        (BODY, Signer([NEW]).headers(id="msg-1", timestamp=int(time.time()) - 600, body=BODY), NEW),
    ):
        with pytest.raises(WebhookVerificationError):
            Webhook(secret).verify(body, values)


@pytest.mark.parametrize("secret", ["", "my own words", "whsec_AAAA", "whsec_!!!!", "whsec_" + "A" * 92])
def test_a_secret_that_is_none_is_refused_and_not_shown(secret: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        Signer([secret])
    assert not secret or secret not in str(refused.value)


def test_no_secret_or_too_many_are_refused() -> None:
    for secrets in ([], [OLD] * 6, OLD):
        with pytest.raises(InvalidValue):
            Signer(secrets)


@pytest.mark.parametrize("mode", ["binary", "structured"])
async def test_signed_is_what_goes_out_with_the_same_id_for_every_attempt(mode: str) -> None:
    async with serving() as destination:
        transport = HttpTransport(
            destination.url,
            egress=HERE,
            signer=Signer([NEW]),
            cloudevents=CloudEvents("/shop", mode=mode),  # type: ignore[arg-type]
        )
        for number in (1, 2):
            await transport.send(m.attempt(number=number))
        await transport.aclose()
    for asked in destination.asked:
        assert Webhook(NEW).verify(asked.body, asked.headers)
        assert asked.headers["webhook-id"] == str(m.SOME_ID)
