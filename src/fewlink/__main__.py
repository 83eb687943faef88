"""The command. It can be interrupted from its first import on."""

import sys


def main() -> None:
    """Run the command line."""
    try:
        from fewlink.cli import main as run
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
