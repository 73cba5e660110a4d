"""Experiments: a specification is run, recorded and reported; methods are compared on anyone's rows.

In: a specification, or rows and labels. Out: records, tables (markdown, LaTeX, CSV), figures, HTML pages.
"""
