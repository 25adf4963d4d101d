"""The schema: numbered files, repeatable verbs, the lock under which they are applied."""
