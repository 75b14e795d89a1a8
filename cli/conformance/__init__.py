"""The contract as checks that hold any deployment to it, over HTTP alone.

Tables are the service's own: shapes, codes, headers, routes, bounds, content types. What is done
with them is not: framings, digests and samples are read here once more.
"""
