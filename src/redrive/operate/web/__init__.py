"""Authentication, permissions, CSRF and idempotency, shared by the API and the console's pages."""
