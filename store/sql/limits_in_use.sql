-- limits_in_use: whether jobs have ever come with a limit: a dispatcher looks for those that may be let
--   in only if there are any.
-- Parameters: none.
SELECT EXISTS (SELECT FROM limit_state) OR EXISTS (SELECT FROM limit_arrival);
