"""What may speak and as whom: the manifests of artifacts and voices, checked against each other."""
