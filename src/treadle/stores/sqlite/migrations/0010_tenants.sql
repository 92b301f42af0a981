-- `tenant`: what stands before the unit separator in a key that a tenant gave; '' for the tenant without a name. Lists are
-- of one tenant, so their indexes begin with it.
ALTER TABLE tasks ADD COLUMN tenant TEXT GENERATED ALWAYS AS (substr(key, 1, max(instr(key, char(31)) - 1, 0))) VIRTUAL;
DROP INDEX tasks_by_created;
DROP INDEX tasks_by_state;
DROP INDEX tasks_by_agent;
CREATE INDEX tasks_by_created ON tasks(tenant, created, key);
CREATE INDEX tasks_by_state ON tasks(tenant, state, created, key);
CREATE INDEX tasks_by_agent ON tasks(tenant, agent, created, key);

ALTER TABLE threads ADD COLUMN tenant TEXT GENERATED ALWAYS AS (substr(key, 1, max(instr(key, char(31)) - 1, 0))) VIRTUAL;
CREATE INDEX threads_by_tenant ON threads(tenant, key);

ALTER TABLE grants ADD COLUMN tenant TEXT GENERATED ALWAYS AS (substr(id, 1, max(instr(id, char(31)) - 1, 0))) VIRTUAL;
CREATE INDEX grants_by_tenant ON grants(tenant, created, id);

-- A version that does not know tenants would show the tasks of all of them.
UPDATE compatible SET opens = 10;
