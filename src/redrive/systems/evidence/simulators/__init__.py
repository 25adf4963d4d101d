"""A Case API with a ledger of its own, and the kit's mail server as a process: for the demo, the proof and tests."""
