"""The command line: one file per group of commands, imported when a command of it is called.

To add a command, write a function in the file it belongs to (its docstring is the help) and name it in ``COMMANDS`` of
``main``; a command of a group only needs the decorator of its group. A command reads files, calls the library, and
passes the results to ``show``, which prints tables or JSON. What commands share, options included, is in ``terminal``.
"""
