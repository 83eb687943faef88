"""Write a synthetic benchmark with the shape of NELL-One or Wiki-One, in the NELL-One layout.

    python benchmarks/generate.py --like wiki-one --entities 3000 --triples 12000 --out small-wiki

Without --entities and --triples it is as large as the published one.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fewlink.core.errors import FewlinkError
from measure import print_table
from synthetic import LIKE, generate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="new folder for the benchmark")
    parser.add_argument("--like", choices=LIKE, default="nell-one", help="benchmark to imitate")
    parser.add_argument("--entities", type=int, help="default: as published, or in proportion to --triples")
    parser.add_argument("--triples", type=int, help="default: as published, or in proportion to --entities")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    try:
        counts = generate(given.out, given.like, given.entities, given.triples, given.seed)
    except FewlinkError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    print_table([{"what": what, "count": count} for what, count in counts.items()])


if __name__ == "__main__":
    main()
