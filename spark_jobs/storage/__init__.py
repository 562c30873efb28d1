"""The places of log, state and results: the file systems that Spark reads, behind one small interface.

Start at `location.py` (what an option may name) and `storage.py` (what can be done there); `choice.py` picks the storage of a location.
Local folders are plain Python and need no JVM; everything else goes through Hadoop's FileSystem in the session's JVM, as Spark's own
reading and writing does.
"""
