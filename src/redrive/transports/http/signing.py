"""Signatures of outgoing webhooks by the Standard Webhooks specification.

Signed are the bytes that go out, with the id of the message (the same for every attempt) and the time of the attempt.
While a secret is being rotated there are two, and a signature with each: receivers may have either.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

from redrive.errors import InvalidValue

PREFIX: Final = "whsec_"
SECRET_BYTES_MIN, SECRET_BYTES_MAX = 24, 64
SECRETS_MAX: Final = 5


class Signer:
    """secrets: each `whsec_` and base64 of 24 to 64 bytes; the newest first. They are never shown."""

    def __init__(self, secrets: Sequence[str]) -> None:
        if isinstance(secrets, str) or not 1 <= len(secrets) <= SECRETS_MAX:
            raise InvalidValue(f"secrets must be a list of 1 to {SECRETS_MAX} secrets.")
        self._keys = [_key(place, secret) for place, secret in enumerate(secrets)]

    def headers(self, *, id: str, timestamp: int, body: bytes) -> dict[str, str]:
        if "." in id:
            raise InvalidValue("The id of a webhook must have no dot: it separates what is signed.")
        signed = b".".join([id.encode(), str(timestamp).encode(), body])
        signatures = [base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode() for key in self._keys]
        return {
            "webhook-id": id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
        }


def _key(place: int, secret: str) -> bytes:
    """Refusals name the place, never the secret."""
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidValue(f"secrets[{place}] is not {PREFIX} and base64.") from error
    if not secret.startswith(PREFIX) or not SECRET_BYTES_MIN <= len(key) <= SECRET_BYTES_MAX:
        raise InvalidValue(
            f"secrets[{place}] must begin with {PREFIX} and hold {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes;"
            f" it holds {len(key)}."
        )
    return key
