"""`redrive payments demo`: nine payments over three simulated rails; `story` says how each must end, `play` runs it."""
