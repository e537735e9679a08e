"""What a release needs beside the product: its version, and the list of what is in the image."""
