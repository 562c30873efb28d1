"""What every room may import and none owns: each module has one subject and no state, and imports nothing else of ours."""
