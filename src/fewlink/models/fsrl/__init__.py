"""FSRL, its ablations and GMatching: models composed of a neighbour encoder, an aggregator and a matcher."""
