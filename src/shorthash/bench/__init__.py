"""Whole experiments: data, learning, searching and scoring in one run, returned as records.

In: what to run. Out: frozen records, from which tables, figures and pages can be drawn again without training.
"""
