"""`redrive prove payments`: thousands of payments against rails that lose, delay and refuse, while relays are killed.

`campaign` runs both runs, `rules` judges them by the rails' ledgers. Random histories: `drawing`, `running`, `judging`.
"""
