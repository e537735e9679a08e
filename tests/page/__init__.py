"""The page in a real browser: `make page-test`. The files are not called test_*, so no other target runs them."""
