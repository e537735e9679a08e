"""Random worlds, answered by the product and by the tests' own rules for Longhorn, and compared."""
