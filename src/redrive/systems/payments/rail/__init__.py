"""A rail to try payments against: a real HTTP server in a process of its own, with a ledger of its own, and faults.

`redrive payments rail` starts it; `redrive prove payments`, the demo and the tests do too. Its ledger is the judge: an
effect is what it says, whatever the engine believes. `script` decides what goes wrong, `ledger` keeps what happened,
`server` speaks HTTP.
"""
