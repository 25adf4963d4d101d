"""The proof of reviews: relays are killed between acceptance and write, and the providers' own logs decide."""
