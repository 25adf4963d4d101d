"""Wake-up: when to poll, and how producers notify a relay that is idle."""
