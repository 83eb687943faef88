"""The paper's tables and figures, and the tables, charts and report that are made of stored records.

A study is a module of this package, named in `names.NAMES`, and a plan of the same name in `recipes`.
"""

from fewlink.studies.names import NAMES, open_study

__all__ = ["NAMES", "open_study"]
