"""Files and folders that are replaced atomically, locked while they are written, and checked when they are read.

To write `name`, a process takes the lock `.name.lock`, fills the draft `.name.new`, moves the old version to
`.name.previous`, and renames the draft. A reader opens `name`, or `.name.previous` while `name` is missing, and starts
again if a writer replaced the folder meanwhile; it changes nothing on disk. If a writer is killed, the next one cleans
up under the lock.
"""

from fewlink.core.storage.checksums import sha256_file, with_sha256, without_sha256
from fewlink.core.storage.files import read_json, replaced_file, sync, write_bytes, write_json
from fewlink.core.storage.folders import (
    MAX_READ_SECONDS,
    RETRY_SECONDS,
    is_folder_of,
    new_folder,
    open_folder,
    read_folder,
)
from fewlink.core.storage.locks import locked
from fewlink.core.storage.places import MANIFEST, exists, place_of
from fewlink.core.storage.recovery import locked_inside, recover, recover_quietly

__all__ = [
    "MANIFEST",
    "MAX_READ_SECONDS",
    "RETRY_SECONDS",
    "exists",
    "is_folder_of",
    "locked",
    "locked_inside",
    "new_folder",
    "open_folder",
    "place_of",
    "read_folder",
    "read_json",
    "recover",
    "recover_quietly",
    "replaced_file",
    "sha256_file",
    "sync",
    "with_sha256",
    "without_sha256",
    "write_bytes",
    "write_json",
]
