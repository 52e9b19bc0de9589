"""A silo's side of a federation over Flower: its config, its process, its state, and what it runs."""
