"""Scores become something a person reads.

In: Scores, codes, rows of results. Out: tables (markdown, LaTeX, CSV), figures, one self-contained HTML page.
"""
