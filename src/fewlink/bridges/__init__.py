"""Bridges to where curators and their data are: OpenRefine, MCP clients, data frames and Neo4j."""
