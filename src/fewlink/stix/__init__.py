"""STIX 2.1, the exchange format of threat intelligence: bundles as graphs, and links as relationships."""
