"""The desk: groups of failures, the workflow of a dead letter, replays, the audit. No SQL, no words about terminals."""
