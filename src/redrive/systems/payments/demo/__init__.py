"""`redrive payments demo`: nine payments of three companies over three rails, and what becomes of each.

`story` says who pays whom, what goes wrong and how it must end; `play` lets it happen on a real database, with a real
relay and simulated rails, and looks into the rails' ledgers in the end.
"""
