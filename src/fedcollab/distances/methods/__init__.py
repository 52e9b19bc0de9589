"""Methods that estimate distances: a file for each, and another for its client side."""
