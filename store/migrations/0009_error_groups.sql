-- Dead letters by their error, and what operators do with them.
-- compatible-from: 1
-- functions: 9cdcba11bde2

-- Which failures are one (store/error_group.py), said by whoever wrote the death. NULL: by a version
-- that did not say, or for another reason than an error.
ALTER TABLE dead ADD COLUMN error_group text;
CREATE INDEX dead_by_group ON dead (error_group, dead_since);
