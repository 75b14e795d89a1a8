"""What both ends of the queue agree on: messages, keys, errors, settings, digests, manifests."""
