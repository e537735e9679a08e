"""How the suite's processes serve HTTP: gunicorn, bounded handshakes, certificates that change while it runs."""
