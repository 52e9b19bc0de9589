"""How the coalitions are found and proven: searches, lower bounds and exact methods behind `solve` and `c_path`."""
