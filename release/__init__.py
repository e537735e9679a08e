"""What a release needs besides the product: its version, and the list of what is in the image."""
