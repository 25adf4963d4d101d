"""What a system's own transport decides with: answers of a send and of a lookup, the rules and options of its
destination, and what a message is enqueued with.
"""

from redrive.answers import Answer, LookupAnswer, clean_code
from redrive.app import DestinationOptions, rules_of
from redrive.message import FIRST_STAGE, EnqueueOptions
from redrive.policy import Rules, address_of
from redrive.ports import Record
from redrive.transports.functions import Classify

__all__ = [
    "FIRST_STAGE",
    "Answer",
    "Classify",
    "DestinationOptions",
    "EnqueueOptions",
    "LookupAnswer",
    "Record",
    "Rules",
    "address_of",
    "clean_code",
    "rules_of",
]
