"""Ways to reach a destination: leaves of the tree, one library each. None imports another."""
