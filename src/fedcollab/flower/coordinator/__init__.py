"""The coordinator's side of a federation over Flower: its folder, the SuperLink with its gate, and runs over it."""
