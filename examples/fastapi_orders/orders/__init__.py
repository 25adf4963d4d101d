"""Orders over HTTP, each with a receipt that is written by a relay in the same process."""
