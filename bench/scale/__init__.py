"""How what sluice costs grows: with connections, topics, rules, messages, workers and time. `run.py` is the program."""
