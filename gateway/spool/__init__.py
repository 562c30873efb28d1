"""The spool: messages that are over their limit wait on disk, in order, instead of in memory (`docs/spooling.md`)."""
