"""Several supervisors, one PostgreSQL, and everything that can go wrong; then a proof offline.

Everybody who acts writes down what they did (`history.py`), PostgreSQL itself writes down every
claim and every ending in the transaction that makes it (`audit.py`), and a checker (`checker.py`)
reads all of it when it is over and says what must not have happened. A checker that never finds
anything proves nothing: `controls.py` takes one guard at a time out of a copy of the product, and
the run must fail.
"""
