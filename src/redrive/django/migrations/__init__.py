"""One migration for each version of Redrive whose SQL is another; all of them do the same (`operations.Upgrade`)."""
