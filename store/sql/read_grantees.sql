-- read_grantees: the roles that were given rights; those that exist no more are left out.
-- {schema} is the quoted name of the schema.
SELECT g.role, g.kind
FROM {schema}.grantee AS g
WHERE EXISTS (SELECT FROM pg_catalog.pg_roles AS r WHERE r.rolname = g.role)
ORDER BY g.kind, g.role
