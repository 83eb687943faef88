"""Calls a function in a process of its own, whose memory is limited: what it reads can kill it, but nothing else.

The process reads the arguments as JSON from standard input, and writes `{"result": …}` or, for an error that the user
can fix, `{"error": …}` to standard output. The caller looks at its memory from time to time and kills it if that is too
much. Twice as much is never allocated: a library may then fail in any way, or hang.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pkgutil
import resource
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from fewlink.core.errors import FewlinkError

OUT_OF_MEMORY = 70  # exit code
WATCH_SECONDS = 0.05
MAX_OUTPUT_SHARE = 16  # the result has at most this fraction of the memory


async def call(function: str, arguments: Mapping[str, object], what: str, max_bytes: int) -> object:
    """Call a function, given as `package.module:function`, in a process with at most so many bytes of memory.

    `what` names the input in errors. If the caller is cancelled, the process is killed.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "fewlink.core.child", function, str(max_bytes)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "RUST_BACKTRACE": "0"},  # a backtrace takes memory
    )
    watching = asyncio.create_task(kill_if_larger(process, max_bytes))
    try:
        output, _ = await process.communicate(json.dumps(arguments).encode())
    finally:
        watching.cancel()
        if process.returncode is None:
            process.kill()
            await process.wait()
    return await asyncio.to_thread(result_of, process.returncode or 0, output, what, max_bytes)


async def kill_if_larger(process: asyncio.subprocess.Process, max_bytes: int) -> None:
    """Kill a process once its memory exceeds a limit."""
    while resident_bytes(process.pid) <= max_bytes:
        await asyncio.sleep(WATCH_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        process.kill()


def resident_bytes(process: int) -> int:
    """The memory of a process; 0 if the system does not tell."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError):
        return 0


def result_of(status: int, output: bytes, what: str, max_bytes: int) -> object:
    """The result of a process that has ended; raises if there is none. `what` names the input."""
    if status:
        reason = "" if status in (OUT_OF_MEMORY, -signal.SIGKILL) else f" (its process ended with {status})"
        limit = f"{max_bytes / 2**20:,.0f} MiB of memory, which this server allows"
        raise FewlinkError(f"{what}: reading it takes more than {limit}{reason}: send a smaller file")
    answer = json.loads(output)
    if "error" in answer:
        raise FewlinkError(answer["error"])
    return answer["result"]


def main(function: str, max_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (2 * max_bytes, 2 * max_bytes))
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
