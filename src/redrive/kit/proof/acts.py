"""What operators do to messages in a history: how it is drawn, and statements with named values. `who` does it."""

import random
from collections.abc import Mapping
from typing import Final, LiteralString

UNFITTING: Final = 0.12  # of the acts are drawn from all

# Where something can be: how often it is then chosen, and how often each verb.
Situations = Mapping[str, tuple[int, Mapping[str, int]]]

ACTS: Final[Mapping[str, LiteralString]] = {
    "requeue": "SELECT redrive.requeue_1(%(id)s, %(who)s, 'history', %(stage)s, %(out_of_order)s)",
    "discard": "SELECT redrive.discard_1(%(id)s, %(who)s, 'history')",
    "confirm": "SELECT redrive.confirm_1(%(id)s, %(who)s, 'history', 'R')",
    "deny": "SELECT redrive.deny_1(%(id)s, %(who)s, 'history')",
    "repair": "SELECT redrive.repair_1(%(id)s, %(who)s, 'history')",
    "cancel": "SELECT redrive.cancel_1(%(id)s, %(who)s, 'history')",
    "skip": "SELECT redrive.skip_1(%(tenant)s, %(key)s, %(who)s, 'history')",
    "triage": "SELECT result FROM redrive.triage_1(ARRAY[%(id)s], %(cause)s, %(who)s, 'history')",
    "remediate": "SELECT result FROM redrive.remediate_1(ARRAY[%(id)s], %(who)s, 'history', 'it is up')",
    "edit": "SELECT redrive.edit_1(%(id)s, %(version)s, %(body)s, 'application/json', %(paths)s::json, %(who)s,"
    " 'history')",
    "copy": "SELECT result, id FROM redrive.copy_1(%(id)s, %(key)s, %(who)s, 'history')",
    "replay": "SELECT result, id FROM redrive.create_replay_1('history', NULL, %(wanted)s::json, %(stage)s,"
    " %(out_of_order)s, true, 1000, 0, 1, 100, %(who)s, 'history')",
    "approve": "SELECT redrive.steer_replay_1(%(id)s, 'approve', %(who)s, 'history')",
    "pause": "SELECT redrive.pause_1(%(destination)s, %(who)s, 'history')",
    "resume": "SELECT redrive.resume_1(%(destination)s, %(who)s, 'history')",
}
# The newest payload of a parked message, and the version that an edit has to name.
BODY: Final = """
SELECT k.row_version, coalesce(b.bytes, m.body) FROM redrive.parked k JOIN redrive.message m ON m.id = k.id
  LEFT JOIN redrive.body b ON b.message_id = k.id AND b.version = k.version
 WHERE k.id = %s
"""


def drawn_act(chance: random.Random, found: Mapping[str, str], situations: Situations) -> tuple[str, str]:
    """One of what was found in those situations, and a verb."""
    subject = chance.choices([*found], [situations[there][0] for there in found.values()])[0]
    _, fitting = situations[found[subject]]
    verb = chance.choices([*fitting], [*fitting.values()])[0]
    if chance.random() < UNFITTING:
        verb = chance.choice(sorted({verb for _, verbs in situations.values() for verb in verbs}))
    return subject, verb
