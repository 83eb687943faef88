"""From result records to tables, charts and pages."""
