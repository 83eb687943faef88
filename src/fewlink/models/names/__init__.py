"""Names as evidence: the similarity of the names of head, candidates and references."""
