"""``shorthash`` and ``python -m shorthash`` are the command line."""

import signal


def main() -> None:
    """Run the command line; Ctrl-C while its modules are imported ends the process without a traceback."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where it is ignored, as after nohup
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from shorthash.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
