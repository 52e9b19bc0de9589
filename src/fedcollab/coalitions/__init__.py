"""Coalitions."""
