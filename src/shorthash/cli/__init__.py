"""The command line: one file per verb; a command parses, calls the library, and hands an answer to ``output``.

In: arguments. Out: tables or JSON on standard output; progress, warnings and errors on standard error.
"""
