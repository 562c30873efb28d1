"""What waits: lines of held parts, in memory and behind that on disk (`gateway/spool/`), the same for every protocol."""
