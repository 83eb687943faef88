"""Names as evidence: how like the names of head, candidates and references are, beside what the graph says."""
