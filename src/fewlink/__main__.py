"""The command. It can be interrupted from its first import on."""

import gc
import sys

LIVE_OBJECTS = 50_000  # made before Python looks for unused ones: imports make many, all of which stay


def main() -> None:
    """Run the command line."""
    gc.set_threshold(LIVE_OBJECTS)
    try:
        from fewlink.cli import main as run
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(130)
    try:
        run()
    except SystemExit as end:
        if not end.code:  # an error still holds on to what it was raised in, and DuckDB would list that as leaks
            gc.freeze()  # at exit Python would search all objects of torch once more: a third of a second
        raise


if __name__ == "__main__":
    main()
