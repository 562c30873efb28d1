"""What waits: lines of held parts, in memory and behind that on disk (`disk/`), the same for every protocol."""
