"""The version of gorun. What contrib/tools/pyzip adds to the binary has the binary's here."""

__version__ = "0.0.0+source"
