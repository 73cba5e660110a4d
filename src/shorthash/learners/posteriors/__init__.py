"""Posteriors: models of the probability of each class (or label set) given a row."""
