"""The only package that knows the `kubernetes` client library."""
