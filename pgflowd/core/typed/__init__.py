"""
Typed values: which annotations name a shape, and how such values become JSON and back.

msgspec or pydantic do the work. Neither is imported before an annotation or a value needs it.
"""
