"""One file a method that estimates distances, and one for its client side."""
