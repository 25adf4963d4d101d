"""Signatures of outgoing webhooks by the Standard Webhooks specification.

Signed are the bytes that go out, the id of the message (the same for every attempt) and the time of the attempt. A
shared secret makes a `v1` signature (HMAC-SHA256); a private key, of which receivers know the public half, a `v1a`
(Ed25519; needs `redrive[ed25519]`). During a rotation there is a signature with each.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Sequence
from typing import Final

from redrive.errors import InvalidValue

PREFIX: Final = "whsec_"
PRIVATE_PREFIX: Final = "whsk_"
PUBLIC_PREFIX: Final = "whpk_"
SECRET_BYTES_MIN, SECRET_BYTES_MAX = 24, 64
SEED_BYTES: Final = 32
SECRETS_MAX: Final = 5

Sign = Callable[[bytes], str]


class Signer:
    """secrets: the newest first, and never shown; each `whsec_` and base64 of 24 to 64 bytes, or `whsk_` and base64 of
    an Ed25519 private key (its seed of 32 bytes, or 64 with the public key behind it)."""

    def __init__(self, secrets: Sequence[str]) -> None:
        if isinstance(secrets, str) or not 1 <= len(secrets) <= SECRETS_MAX:
            raise InvalidValue(f"secrets must be a list of 1 to {SECRETS_MAX} secrets.")
        self._signs = [_sign_with(place, secret) for place, secret in enumerate(secrets)]

    def headers(self, *, id: str, timestamp: int, body: bytes) -> dict[str, str]:
        if "." in id:
            raise InvalidValue("The id of a webhook must have no dot: it separates what is signed.")
        signed = b".".join([id.encode(), str(timestamp).encode(), body])
        return {
            "webhook-id": id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": " ".join(sign(signed) for sign in self._signs),
        }


def public_key(secret: str) -> str:
    """What receivers need of a private key: `whpk_` and base64."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.from_private_bytes(_decoded(0, secret, PRIVATE_PREFIX)[:SEED_BYTES])
    return PUBLIC_PREFIX + base64.b64encode(key.public_key().public_bytes_raw()).decode()


def _sign_with(place: int, secret: str) -> Sign:
    return _private(place, secret) if secret.startswith(PRIVATE_PREFIX) else _shared(place, secret)


def _shared(place: int, secret: str) -> Sign:
    key = _decoded(place, secret, PREFIX)
    if not SECRET_BYTES_MIN <= len(key) <= SECRET_BYTES_MAX:
        raise InvalidValue(
            f"secrets[{place}] must begin with {PREFIX} and hold {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes;"
            f" it holds {len(key)}."
        )
    return lambda signed: f"v1,{base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()}"


def _private(place: int, secret: str) -> Sign:
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ModuleNotFoundError as error:
        raise InvalidValue(
            f"secrets[{place}] is an Ed25519 key, which needs cryptography: pip install 'redrive[ed25519]'."
        ) from error
    given = _decoded(place, secret, PRIVATE_PREFIX)
    if len(given) not in (SEED_BYTES, 2 * SEED_BYTES):
        raise InvalidValue(f"secrets[{place}] must hold {SEED_BYTES} or {2 * SEED_BYTES} bytes; it holds {len(given)}.")
    key = Ed25519PrivateKey.from_private_bytes(given[:SEED_BYTES])
    if given[SEED_BYTES:] not in (b"", key.public_key().public_bytes_raw()):
        raise InvalidValue(f"The two halves of secrets[{place}] do not belong together.")
    return lambda signed: f"v1a,{base64.b64encode(key.sign(signed)).decode()}"


def _decoded(place: int, secret: str, prefix: str) -> bytes:
    """Refusals name the place, never the secret."""
    try:
        if secret.startswith(prefix):
            return base64.b64decode(secret.removeprefix(prefix), validate=True)
    except (binascii.Error, ValueError):
        pass
    raise InvalidValue(f"secrets[{place}] is not {PREFIX} or {PRIVATE_PREFIX} and base64.")
