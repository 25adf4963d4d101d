"""`redrive prove payments`: thousands of payments against rails that lose, delay and refuse, while relays are killed.

`config` says under which settings, `app` is what the relays run, `stage` starts and ends the processes, `campaign` runs
it, `rules` judge by the rails' own ledgers and nothing else.
"""
