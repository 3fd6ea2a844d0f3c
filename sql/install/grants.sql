-- The rights of the roles: see sql/roles.sql.
select 1;
