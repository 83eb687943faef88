"""Studies of stored results: tables, charts and a report."""
