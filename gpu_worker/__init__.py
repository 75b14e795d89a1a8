"""The GPU worker: keeps one warm model, takes jobs, makes frames. The only package with torch."""
