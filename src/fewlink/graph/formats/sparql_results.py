"""Results of SPARQL queries in JSON, XML or TSV, read by pyoxigraph."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import IO

from fewlink.core.errors import InputError
from fewlink.graph.columns import named_layout
from fewlink.graph.formats.rdf import RDF_ERROR_PLACE, RdfTerms, import_pyoxigraph
from fewlink.graph.source import BLOCK_ROWS, Source
from fewlink.graph.vocabulary import Block

RESULTS_HEADER = re.compile(rb"\?\w+\t\?\w+\t\?\w+\r?\n")  # first line of SPARQL results in TSV


def read_results(source: Source, file: IO[bytes], syntax: str) -> Iterator[Block]:
    """Read the chosen variables, or those named head, relation and tail or alike, or else the only three."""
    pyoxigraph = import_pyoxigraph("SPARQL results")
    terms = RdfTerms(source)
    results = None
    try:
        results = pyoxigraph.parse_query_results(input=file, format=getattr(pyoxigraph.QueryResultsFormat, syntax))
        if isinstance(results, pyoxigraph.QueryBoolean):
            raise InputError(source.path, "is the result of an ASK query: SELECT a head, a relation and a tail instead")
        names = [variable.value for variable in results.variables]
        layout = named_layout(source.path, names, source.reading.columns)
        source.facts.add(layout)
        if layout.places is None:
            raise InputError(source.path, "is SPARQL results: choose a variable for head, relation and tail")
        columns = [names[place] for place in layout.places]
        for number, solution in enumerate(results, 1):
            row = [solution[column] for column in columns]
            if None in row:
                source.bad(f"has no {('head', 'relation', 'tail')[row.index(None)]} in result {number:,}", None)
            elif any(isinstance(term, pyoxigraph.Literal) for term in row) and not source.reading.keep_literals:
                terms.literals += 1
            else:
                terms.fields += map(terms.name, row)
            if len(terms.fields) >= 3 * BLOCK_ROWS:
                yield terms.take()
    except (SyntaxError, ValueError) as error:
        reason = RDF_ERROR_PLACE.sub("", getattr(error, "msg", None) or str(error))
        source.bad(f"is not a valid {syntax} file of SPARQL results ({reason})", getattr(error, "lineno", None))
    finally:
        results = None  # freed by the thread that made it; a traceback would keep it alive
    yield terms.take()
