"""A wide made-up world under random schedules, and what must hold of every promise in it."""
