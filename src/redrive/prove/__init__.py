"""Our guarantees, run by the user with real processes: `redrive prove`.

`observer` writes down what reaches a destination, `producer` what was committed; `campaign` kills relays at every
step boundary; `checker` believes only those logs and the database.
"""
