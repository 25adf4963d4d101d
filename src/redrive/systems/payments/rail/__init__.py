"""A rail to try payments against: an HTTP server in a process of its own, with a ledger and faults.

Its ledger is the judge: an effect is what it says, whatever the engine believes.
"""
