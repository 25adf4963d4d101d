"""A shop that takes orders and confirms them by mail."""
