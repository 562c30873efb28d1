"""The backtest: past logs through the limiter's own rules, buckets and breakers, in virtual time.

`replay` judges one part of the topics, `distribution` gives parts to Spark's workers, `contender` has the limits that are tried,
`quick` answers from the daily states instead of the logs, `result` holds the answer.
"""
