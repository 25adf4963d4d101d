"""Signatures that every receiver of Standard Webhooks verifies, also while a secret is being rotated."""

from __future__ import annotations

import base64
import sys
import time
from datetime import UTC, datetime

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from redrive.errors import InvalidValue
from redrive.transports.http import CloudEvents, HttpTransport, Signer, public_key
from tests.support import ed25519
from tests.support import messages as m
from tests.transports.servers import HERE, serving

OLD, NEW = ("whsec_" + base64.b64encode(bytes([number]) * 32).decode() for number in (1, 2))
# RFC 8032, 7.1, test 1; and a key of our own with its public half behind it.
SEED = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
PUBLIC = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
PRIVATE = "whsk_" + base64.b64encode(SEED).decode()
WHOLE = "whsk_" + base64.b64encode(SEED + PUBLIC).decode()
OTHER = "whsk_" + base64.b64encode(bytes(32)).decode()
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


def verified(made: dict[str, str], public: str, *, body: bytes = BODY) -> bool:
    """As a receiver that has the public key only would judge it."""
    signed = f"{made['webhook-id']}.{made['webhook-timestamp']}.".encode() + body
    key = base64.b64decode(public.removeprefix("whpk_"))
    tried = [one.removeprefix("v1a,") for one in made["webhook-signature"].split() if one.startswith("v1a,")]
    return any(ed25519.verifies(key, signed, base64.b64decode(signature)) for signature in tried)


def test_the_second_opinion_on_signatures_knows_the_vector_of_the_rfc() -> None:
    signature = bytes.fromhex(
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46b"
        "d25bf5f0595bbe24655141438e7a100b"
    )
    assert ed25519.verifies(PUBLIC, b"", signature)
    assert not ed25519.verifies(PUBLIC, b"x", signature)
    assert not ed25519.verifies(PUBLIC, b"", signature[:-1] + b"\x00")


@pytest.mark.parametrize("secret", [PRIVATE, WHOLE])
def test_whoever_has_the_public_key_can_verify(secret: str) -> None:
    made = headers(secret)
    assert public_key(secret) == "whpk_" + base64.b64encode(PUBLIC).decode()
    assert verified(made, public_key(secret))
    assert not verified(made, public_key(OTHER))
    assert not verified(made, public_key(secret), body=b'{"to":"b"}')
    assert not verified({**made, "webhook-id": "msg-2"}, public_key(secret))


def test_keys_are_rotated_like_secrets_and_beside_them() -> None:
    made = headers(OTHER, PRIVATE, OLD)
    assert [one.partition(",")[0] for one in made["webhook-signature"].split()] == ["v1a", "v1a", "v1"]
    assert verified(made, public_key(OTHER))
    assert verified(made, public_key(PRIVATE))
    assert Webhook(OLD).verify(BODY, made) == {"to": "ä"}  # one that knows v1 only passes over the others


@pytest.mark.parametrize(
    "key",
    [b"", SEED[:31], SEED + b"x", SEED + bytes(32)],
    ids=["empty", "short", "of no length", "two halves that do not belong together"],
)
def test_a_private_key_that_is_none_is_refused_and_not_shown(key: bytes) -> None:
    secret = "whsk_" + base64.b64encode(key).decode()
    with pytest.raises(InvalidValue, match=r"secrets\[0\]") as refused:
        Signer([secret])
    assert not key or secret.removeprefix("whsk_") not in str(refused.value)


def test_without_the_library_a_private_key_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric.ed25519", None)
    with pytest.raises(InvalidValue, match=r"redrive\[ed25519\]"):
        Signer([PRIVATE])
    assert headers(OLD)["webhook-signature"].startswith("v1,")
