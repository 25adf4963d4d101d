"""The demo behind `./run`: a small shop that uses Redrive as any application would, by its public names only."""
