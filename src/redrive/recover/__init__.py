"""What heals and cleans up: periodic duties, each a function that runs once and says what it did."""
