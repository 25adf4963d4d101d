"""Errors say who must act, have a stable code of their own, and name the command that helps."""

from __future__ import annotations

import re

import pytest

from redrive import errors
from redrive.errors import ClaimLost, NotFinished, OperatorError, RedriveError, UsageError

CLASSES = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, RedriveError)]


def test_every_error_has_a_code_of_its_own() -> None:
    codes = [kind.code for kind in CLASSES]
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"[A-Z][A-Z_]+", code) for code in codes)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_error_says_who_must_act(kind: type[RedriveError]) -> None:
    groups = [group for group in (UsageError, OperatorError, ClaimLost, NotFinished) if issubclass(kind, group)]
    assert len(groups) == 1 or kind is RedriveError
    assert kind.__doc__


@pytest.mark.req("G-19")
def test_usage_error_is_a_value_error() -> None:
    assert issubclass(UsageError, ValueError)
    assert not issubclass(OperatorError, ValueError)


def test_operator_error_names_what_helps() -> None:
    error = errors.SchemaError("The schema is behind.", next="redrive db upgrade")
    assert str(error) == "The schema is behind. Next: redrive db upgrade"
    assert (error.message, error.next) == ("The schema is behind.", "redrive db upgrade")
    assert str(errors.NotFound("There is none.")) == "There is none."
