"""The import of a product file, as a program that shows everything."""
