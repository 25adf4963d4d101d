"""Splits an SQL script into its statements.

Knows what hides a semicolon: quoted strings and names, `E''` escapes, dollar quotes, line comments, nested block
comments, parentheses (rules) and `BEGIN ATOMIC … END` bodies. It does not parse SQL. Assumes
`standard_conforming_strings = on`. An open quote or comment raises `ValueError` with the line.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

_TOKEN = re.compile(
    r"""
      (?P<space>     \s+ | --[^\n]* )
    | (?P<comment>   /\* )
    | (?P<quoted>    [eE]'(?:[^'\\]|\\.|'')*+' | '(?:[^']|'')*+' | "(?:[^"]|"")*+" )
    | (?P<dollar>    \$(?P<tag>(?:[^\W\d]\w*)?)\$ .*? \$(?P=tag)\$ )
    | (?P<open>      [eE]?' | " | \$(?:[^\W\d]\w*)?\$ )
    | (?P<word>      [^\W\d][\w$]* )
    | (?P<number>    \d[\w.]* )
    | (?P<semicolon> ; )
    | (?P<sign>      . )
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")


@dataclass(frozen=True, slots=True)
class Statement:
    text: str  # from its first word to the semicolon, which is left out
    line: int  # where it begins, counted from 1
    words: tuple[str, ...]  # its bare words in upper case: no quoted names, strings or bodies
    terminated: bool  # False if the script ended before a semicolon came


class _Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int


def split(script: str) -> list[Statement]:
    """Comments and empty statements are left out."""
    statements: list[Statement] = []
    tokens: list[_Token] = []
    nesting = _Nesting()
    for token in _tokens(script):
        if token.kind == "semicolon" and not nesting.inside:
            if tokens:
                statements.append(_statement(script, tokens, terminated=True))
            tokens, nesting = [], _Nesting()
        else:
            nesting.follow(token)
            tokens.append(token)
    if tokens:
        statements.append(_statement(script, tokens, terminated=False))
    return statements


def _tokens(script: str) -> Iterator[_Token]:
    position = 0
    while match := _TOKEN.match(script, position):
        kind = match.lastgroup or ""
        if match["open"] is not None:
            raise ValueError(f"line {line_of(script, position)}: {match[0]} is opened and never closed")
        position = match.end()
        if match["comment"] is not None:
            position = _end_of_comment(script, match.start())
        elif match["space"] is None:
            yield _Token(kind, match[0], match.start(), match.end())


def _end_of_comment(script: str, start: int) -> int:
    depth = 0
    for edge in _COMMENT_EDGE.finditer(script, start):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    raise ValueError(f"line {line_of(script, start)}: /* is opened and never closed")


class _Nesting:
    """How deep we are in parentheses and in a `BEGIN ATOMIC` body, where a CASE has an END of its own."""

    def __init__(self) -> None:
        self._parentheses = 0
        self._blocks = 0
        self._last_word = ""

    @property
    def inside(self) -> bool:
        return self._parentheses > 0 or self._blocks > 0

    def follow(self, token: _Token) -> None:
        if token.kind == "word":
            self._follow_word(token.text.upper())
        elif token.text == "(":
            self._parentheses += 1
        elif token.text == ")":
            self._parentheses -= 1

    def _follow_word(self, word: str) -> None:
        opens_body = word == "ATOMIC" and self._last_word == "BEGIN"
        if opens_body or (self._blocks and word == "CASE"):
            self._blocks += 1
        elif self._blocks and word == "END":
            self._blocks -= 1
        self._last_word = word


def _statement(script: str, tokens: list[_Token], *, terminated: bool) -> Statement:
    start, end = tokens[0].start, tokens[-1].end
    words = tuple(token.text.upper() for token in tokens if token.kind == "word")
    return Statement(script[start:end], line_of(script, start), words, terminated)


def line_of(script: str, position: int) -> int:
    return script.count("\n", 0, position) + 1
