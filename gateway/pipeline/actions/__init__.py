"""What happens to refused messages: one action per file, named in `table.ACTIONS`."""
