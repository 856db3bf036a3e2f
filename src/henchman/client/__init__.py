"""The pushing side: definitions, options, the push."""
