"""`redrive prove evidence`: uploads while relays and workers are killed, judged by the Case API's ledger and the mails.

`plan` draws the uploads, `campaign` runs them with real processes, `rules` judges.
"""
