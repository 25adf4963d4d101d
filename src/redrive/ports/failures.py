"""What a store, a `record` or a handler raises towards the engine."""


class TransientFailure(Exception):
    """The database could not be reached, or wants the transaction again (deadlock, serialisation)."""


class RecordFailed(Exception):
    """`record` raised; its transaction was rolled back. The cause is in `__cause__`."""


class RecordWaits(Exception):
    """`record` waited too long for a lock of another transaction. It was rolled back and is to be run again."""


class NotBegun(Exception):
    """A handler was cut off before its first line ran: nothing can have happened, so the claim is handed back."""
