"""What a person or Helm does with a whole installation: check it, empty its webhook configurations, end it."""
