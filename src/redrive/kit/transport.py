"""What a system's own transport decides with: answers of a send and of a lookup, and the rules of its destination."""

from __future__ import annotations

from redrive.answers import Answer, LookupAnswer, clean_code
from redrive.app import DestinationOptions, rules_of
from redrive.policy import Rules, address_of

__all__ = ["Answer", "DestinationOptions", "LookupAnswer", "Rules", "address_of", "clean_code", "rules_of"]
