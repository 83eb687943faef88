"""Run the notebooks of this folder and store their outputs, without anything that depends on the machine.

python docs/notebooks/execute.py [NOTEBOOK …]    (pip install nbclient ipykernel)
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parent
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python", "pygments_lexer": "ipython3"},
}


def executed(path: Path, timeout: int = 300) -> nbformat.NotebookNode:
    """The notebook with the outputs of a new run; raises if a cell does. A cell may take `timeout` seconds."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=timeout, record_timing=False, coalesce_streams=True).execute()
    notebook.metadata = nbformat.from_dict(METADATA)
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({})
    return notebook


if __name__ == "__main__":
    for path in [Path(name) for name in sys.argv[1:]] or sorted(FOLDER.glob("*.ipynb")):
        start = time.monotonic()
        nbformat.write(executed(path), path)
        print(f"{path.name}: {time.monotonic() - start:.0f} s")
