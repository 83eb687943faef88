"""Bridges to other programs: OpenRefine, MCP clients, data frames, networkx and Neo4j."""
