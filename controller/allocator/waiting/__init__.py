"""Room for one pod; refused pods, and the room that is kept for them."""
