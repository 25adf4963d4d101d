"""Secrets of tokens, links and sessions, stored as hashes. 256 random bits need no salt and no slow hash."""

import hashlib
import hmac
import secrets
from typing import Final

TOKEN_PREFIX: Final = "rdt_"  # noqa: S105 - a prefix that secret scanners can recognise
LINK_PREFIX: Final = "rdl_"
LENGTH_MAX: Final = 200


def new_secret(prefix: str = "") -> str:
    return prefix + secrets.token_urlsafe(32)


def hash_of(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def derived(secret: str, purpose: str) -> str:
    return hmac.new(secret.encode("utf-8", "surrogatepass"), purpose.encode(), hashlib.sha256).hexdigest()


def equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "surrogatepass"), other.encode("utf-8", "surrogatepass"))
