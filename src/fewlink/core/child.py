"""Calls a function in a process of its own, whose memory is limited: what it reads can kill it, but nothing else.

`command` is the command line of such a process. It reads the arguments as JSON from standard input, and writes
`{"result": …}` or, for an error that the user can fix, `{"error": …}` to standard output.
"""

from __future__ import annotations

import json
import pkgutil
import resource
import sys

from fewlink.core.errors import FewlinkError

OUT_OF_MEMORY = 70  # exit code
MAX_OUTPUT_SHARE = 16  # the result has at most this fraction of the memory


def command(function: str, max_bytes: int) -> list[str]:
    """The command that calls a function, given as `package.module:function`, with at most so many bytes of memory."""
    return [sys.executable, "-m", "fewlink.core.child", function, str(max_bytes)]


def result_of(status: int, output: bytes, what: str, max_bytes: int) -> object:
    """The result of a process that has ended; raises if there is none. `what` names the input."""
    if status:
        reason = "" if status == OUT_OF_MEMORY else f" (its process ended with {status})"
        limit = f"{max_bytes / 2**20:,.0f} MiB of memory, which this server allows"
        raise FewlinkError(f"{what}: reading it takes more than {limit}{reason}: send a smaller file")
    answer = json.loads(output)
    if "error" in answer:
        raise FewlinkError(answer["error"])
    return answer["result"]


def main(function: str, max_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (max_bytes, max_bytes))
    try:
        answer = json.dumps({"result": pkgutil.resolve_name(function)(**json.load(sys.stdin))})
    except FewlinkError as error:
        answer = json.dumps({"error": str(error)})
    except MemoryError:
        sys.exit(OUT_OF_MEMORY)
    if len(answer) > max_bytes // MAX_OUTPUT_SHARE:
        sys.exit(OUT_OF_MEMORY)
    sys.stdout.write(answer)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
