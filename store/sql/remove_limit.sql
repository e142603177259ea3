-- remove_limit: this rule counts no more; false if there was none.
-- Guard: the row of the rule.
-- Parameters: key, actor, reason.
SELECT remove_limit(%(key)s, %(actor)s, %(reason)s) AS done;
