"""Results of SPARQL queries in JSON, XML or TSV, read by pyoxigraph."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import IO, Any

from fewlink.core.errors import InputError
from fewlink.graph.columns import Layout, named_layout
from fewlink.graph.plain import shallow_json
from fewlink.graph.rdf import BLOCK_TRIPLES, PARSER_ERRORS, WHOLE_ONLY, Terms, checked_xml, reason_of
from fewlink.graph.tables import Reader

RESULTS_HEADER = re.compile(rb"[^\n]*\?\w+\t[^\n]*\?\w")  # the beginning of SPARQL results in TSV
LABEL = "Label"  # ends the name of a variable whose values are labels of another's, as Wikidata writes them


def read_results(reader: Reader, file: IO[bytes], syntax: str) -> None:
    """Read the chosen variables, or those named head, relation and tail or alike, or else the only three.

    A variable such as `itemLabel` has the readable names of `item`, if there is such a variable.
    """
    path = reader.path
    terms = Terms(reader, f"SPARQL results in {syntax}")
    text: Any = file
    if syntax != "TSV":
        text = checked_xml(file, path) if syntax == "XML" else shallow_json(file, path)
    try:
        found = terms.pyoxigraph.parse_query_results(
            input=text, format=getattr(terms.pyoxigraph.QueryResultsFormat, syntax)
        )
        if not hasattr(found, "variables"):
            raise InputError(path, "is the result of an ASK query: SELECT a head, a relation and a tail instead")
        variables = [variable.value for variable in found.variables]
        layout = _layout(reader, variables)
        columns = [variables[place] for place in layout.used]
        labels = {name: name + LABEL for name in columns if name + LABEL in variables}
        for number, solution in enumerate(found, 1):
            row = [solution[name] for name in columns]
            if None in row:
                missing = ("head", "relation", "tail")[row.index(None)]
                reader.bad(f"has no {missing} in result {number:,}", None)
                continue
            for name, label in labels.items():
                if solution[label] is not None and not isinstance(solution[name], terms.pyoxigraph.Literal):
                    terms.add_label(solution[name], solution[label])
            terms.add(*row)
            if not number % BLOCK_TRIPLES:
                terms.flush()
    except PARSER_ERRORS as error:
        line = getattr(error, "lineno", None)
        problem = f"is not a valid {syntax} file of SPARQL results ({reason_of(error)})"
        raise InputError(path, f"{problem}: {WHOLE_ONLY}", line) from None
    terms.flush()


def _layout(reader: Reader, names: Sequence[str]) -> Layout:
    """The variables of head, relation and tail; those of labels count only if they are chosen."""
    chosen = reader.source.columns
    plain = [name for name in names if not (name.endswith(LABEL) and name.removesuffix(LABEL) in names)]
    if not names:
        raise InputError(reader.path, "is not a file of SPARQL results: it names no variables")
    layout = named_layout(reader.path, plain if chosen is None and len(plain) == 3 else list(names), chosen)
    if not isinstance(layout.relation, int) or layout.tail is None:
        raise InputError(reader.path, "is SPARQL results: choose a variable for head, relation and tail")
    head, relation, tail = (names.index(layout.names[place]) for place in layout.used)
    layout = Layout(len(names), head, relation, tail, tuple(names))
    reader.facts.add(layout)
    return layout
