"""`redrive prove tenant`: many tenants, producers that repeat themselves, kills and restarts, one hostile endpoint.

`plan` draws events and faults, `campaign` runs them with real processes, `judge` believes the producers' journals, the
subscribers' ledger and its own counts of the tables.
"""
