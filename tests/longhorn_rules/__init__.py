"""Longhorn's rules of placement and growth as one table of cases, which the product and the stand-in are both tried
with. Knows neither: what it says comes from Longhorn's documents and code."""
