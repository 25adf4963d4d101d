"""`redrive tenant demo`: three tenants and their subscribers; `story` says what happens, `play` makes it happen."""
