"""The model: CSM's weights and arithmetic, the files that they come from, artifacts made here."""
