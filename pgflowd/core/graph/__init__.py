"""Pictures of DAGs for terminals, mermaid and JSON."""
