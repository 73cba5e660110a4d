"""Rows: files and arrays become feature rows, labels and splits.

In: files, arrays, names of data sets. Out: Dataset, feature rows ``X``, row numbers of queries, training and database.
"""
