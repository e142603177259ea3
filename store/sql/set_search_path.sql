-- set_search_path: until the end of the transaction; returns what it was.
-- Parameters: path.
WITH old AS MATERIALIZED (SELECT current_setting('search_path') AS path)
SELECT old.path, set_config('search_path', %(path)s, true) FROM old;
