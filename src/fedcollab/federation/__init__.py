"""The clients of one run: the schema that they agreed on, and what each said of itself."""
