"""`redrive prove payments`: thousands of payments against rails that lose, delay and refuse, while relays are killed.

`config` has the settings, `app` is what the relays run, `environment` starts rails and relays, `campaign` runs both
runs, `rules` judge by the rails' ledgers. Random histories: `drawing`, `running` (`people`, `restores`), `judging`.
"""
