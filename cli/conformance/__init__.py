"""The contract as checks that hold any deployment to it, over HTTP alone."""
