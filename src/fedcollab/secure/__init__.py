"""Secure aggregation: updates that only add up. Quantities, masks, shares and keys; it knows nothing of models."""
