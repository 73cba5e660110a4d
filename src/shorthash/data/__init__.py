"""Data: files, data sets, splits, and rows in memory or in a stream.

===============================  ====================================================================================
:mod:`~shorthash.data.files`      feature, label and code files (.npy, .npz, .csv, .parquet) to arrays and back
:mod:`~shorthash.data.tables`     columns of ids, labels and features of .csv and .parquet files
:mod:`~shorthash.data.datasets`   data sets by name or path; downloads
:mod:`~shorthash.data.splits`     evaluation protocols: queries, training rows, database
:mod:`~shorthash.data.rows`       rows of an array in batches; checks of ``X``; exact nearest rows
:mod:`~shorthash.data.streams`    rows that need not fit in memory: arrays, batches, tables, Dask collections
===============================  ====================================================================================
"""
