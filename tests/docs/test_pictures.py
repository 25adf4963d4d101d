"""Pictures of the documentation: each is used, described for who cannot see it, and small."""

from __future__ import annotations

import re

from tests.docs.pages import DOCS

BYTES_MAX = 200_000
PICTURES_MAX = 10


def test_every_picture_is_shown_somewhere_with_words_and_is_small() -> None:
    shown: dict[str, str] = {}
    for page in DOCS.rglob("*.md"):
        for words, target in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
            shown[(page.parent / target).resolve().relative_to(DOCS.resolve()).as_posix()] = words
    pictures = {path.relative_to(DOCS).as_posix(): path.stat().st_size for path in DOCS.rglob("*.png")}
    assert set(pictures) <= set(shown)
    assert len(pictures) <= PICTURES_MAX
    assert {name: size for name, size in pictures.items() if size > BYTES_MAX} == {}
    assert [name for name, words in shown.items() if len(words) < 15] == []
