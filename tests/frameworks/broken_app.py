"""An app that fails while it is imported."""

app = 1 / 0
