"""Questions about saved objects, answered offline by the same rules."""
