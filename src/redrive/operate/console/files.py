"""What a page loads besides itself: all of it inside the package, under names that carry the hash of the content.

A name is never given to other bytes, so a browser may keep it for good, and a new version is loaded at once.
"""

import hashlib
from functools import cache
from importlib import resources
from typing import Final, NamedTuple

TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}


class Asset(NamedTuple):
    """name: as pages link it, such as `console.3f9a0c41d2e7.css`."""

    name: str
    content_type: str
    body: bytes


@cache
def assets() -> dict[str, Asset]:
    found = {}
    for file in (resources.files("redrive.operate.console") / "static").iterdir():
        stem, _, kind = file.name.rpartition(".")
        if kind in TYPES:
            body = file.read_bytes()
            digest = hashlib.sha256(body).hexdigest()[:12]
            found[file.name] = Asset(f"{stem}.{digest}.{kind}", TYPES[kind], body)
    return found


@cache
def by_linked_name() -> dict[str, Asset]:
    return {asset.name: asset for asset in assets().values()}
