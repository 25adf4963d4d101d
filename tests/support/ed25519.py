"""Ed25519 verification as RFC 8032 writes it down, in whole numbers: a second opinion on signatures of ours."""

from __future__ import annotations

import hashlib
from typing import Final

P: Final = 2**255 - 19
ORDER: Final = 2**252 + 27742317777372353535851937790883648493
D: Final = -121665 * pow(121666, P - 2, P) % P
ROOT_OF_MINUS_ONE: Final = pow(2, (P - 1) // 4, P)

Point = tuple[int, int, int, int]  # x, y, z, t with x/z, y/z the coordinates and x*y = z*t


def verifies(public: bytes, signed: bytes, signature: bytes) -> bool:
    """Whether the signature of these bytes was made with the private half of that key."""
    key, commitment = _point(public), _point(signature[:32])
    factor = int.from_bytes(signature[32:], "little")
    if key is None or commitment is None or len(signature) != 64 or factor >= ORDER:
        return False
    challenge = int.from_bytes(hashlib.sha512(signature[:32] + public + signed).digest(), "little") % ORDER
    return _same(_times(factor, BASE), _sum(commitment, _times(challenge, key)))


def _sum(one: Point, other: Point) -> Point:
    a, b = (one[1] - one[0]) * (other[1] - other[0]) % P, (one[1] + one[0]) * (other[1] + other[0]) % P
    c, d = 2 * one[3] * other[3] * D % P, 2 * one[2] * other[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def _times(factor: int, point: Point) -> Point:
    total: Point = (0, 1, 1, 0)
    while factor:
        if factor & 1:
            total = _sum(total, point)
        point = _sum(point, point)
        factor >>= 1
    return total


def _same(one: Point, other: Point) -> bool:
    return (one[0] * other[2] - other[0] * one[2]) % P == 0 and (one[1] * other[2] - other[1] * one[2]) % P == 0


def _point(encoded: bytes) -> Point | None:
    if len(encoded) != 32:
        return None
    number = int.from_bytes(encoded, "little")
    y, is_odd = number & ((1 << 255) - 1), number >> 255
    x = _x(y, is_odd)
    return None if x is None else (x, y, 1, x * y % P)


def _x(y: int, is_odd: int) -> int | None:
    if y >= P:
        return None
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * ROOT_OF_MINUS_ONE % P
    if (x * x - square) % P or (x == 0 and is_odd):
        return None
    return P - x if x & 1 != is_odd else x


def _base() -> Point:
    y = 4 * pow(5, P - 2, P) % P
    x = _x(y, 0)
    assert x is not None
    return x, y, 1, x * y % P


BASE: Final = _base()
