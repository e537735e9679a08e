"""What a person or Helm does to an installation as a whole: take it out of the API server's way, end it, check it."""
