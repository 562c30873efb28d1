"""The backtest: past logs through the limiter's own rules, buckets and breakers, in virtual time.

`replay` judges one part of the topics, `distribution` gives parts to Spark's workers, `contenders` says which limits are tried, `quick`
answers from the daily states instead of the logs, `result` is what comes out.
"""
