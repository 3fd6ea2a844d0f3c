"""JSON values: checked, encoded and decoded."""
