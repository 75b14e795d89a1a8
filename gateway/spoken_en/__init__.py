"""Written English as it is spoken, for ``text_normalization: spoken_en``."""
