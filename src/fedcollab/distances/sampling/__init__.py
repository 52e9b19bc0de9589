"""Folds, resampling and standard errors: how sure a distance is."""
