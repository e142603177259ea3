"""`jobctl bench`: how fast this machine, this PostgreSQL and this version are together.

Everything is real: a supervisor started like any other, slots, an app, jobs enqueued through the
public API. What is measured is printed with the conditions under which it was.
"""
