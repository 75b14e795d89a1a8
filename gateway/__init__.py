"""The HTTP side: validates, admits, waits, and streams back. Stateless; run as many as you like."""
