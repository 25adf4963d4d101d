"""Text of others made harmless for a terminal or a log line: escape sequences, line ends, reading direction."""

import unicodedata
from typing import Final

_SIGN: Final = "\N{REPLACEMENT CHARACTER}"
_HARMFUL: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


def one_line(value: object, *, limit: int | None = None) -> str:
    """Without control, format or line-end characters, cut to `limit` with an ellipsis."""
    text = str(value)
    if not (text.isascii() and text.isprintable()):
        text = "".join(_SIGN if unicodedata.category(sign) in _HARMFUL else sign for sign in text)
    return text if limit is None or len(text) <= limit else f"{text[: limit - 1]}…"


def several_lines(value: object) -> str:
    """Keeps line ends and tabs, as of a stack or a payload."""
    return "\n".join(one_line(line.replace("\t", "    ")) for line in str(value).split("\n"))
