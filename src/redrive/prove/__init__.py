"""Our guarantees, run by the user with real processes: `redrive prove engine`.

A destination that writes down what reaches it (`observer`), producers that write down what they committed
(`producer`), relays that are killed at every step boundary (`faults`), and a checker that believes only those logs and
the database.
"""
