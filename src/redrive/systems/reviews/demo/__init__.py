"""The demo of reviews: a repository, a review, and the mail that comes of it."""
