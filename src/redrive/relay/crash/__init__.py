"""After a crash: suspects run in child processes, and a witness file remembers money that was sent."""
