"""``python -m shorthash`` is the command line."""

from shorthash.cli.main import main

if __name__ == "__main__":
    main()
