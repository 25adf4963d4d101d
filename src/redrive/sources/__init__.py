"""Brokers from which consumers receive: one leaf module and one library each, imported when it is used."""
