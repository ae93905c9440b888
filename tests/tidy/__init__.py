"""The rules of the house: they serve the reader of the code, and each failure says how."""
