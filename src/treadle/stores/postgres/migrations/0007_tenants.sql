-- `tenant`: what stands before the unit separator in a key that a tenant gave; '' for the tenant without a name. Lists are
-- of one tenant, so their indexes begin with it.
ALTER TABLE tasks ADD COLUMN tenant text COLLATE "C" NOT NULL
GENERATED ALWAYS AS (CASE WHEN position(E'\x1f' IN key) > 0 THEN split_part(key, E'\x1f', 1) ELSE '' END) STORED;
DROP INDEX tasks_by_created;
DROP INDEX tasks_by_state;
DROP INDEX tasks_by_agent;
CREATE INDEX tasks_by_created ON tasks(tenant, created, key);
CREATE INDEX tasks_by_state ON tasks(tenant, state, created, key);
CREATE INDEX tasks_by_agent ON tasks(tenant, agent, created, key);

ALTER TABLE threads ADD COLUMN tenant text COLLATE "C" NOT NULL
GENERATED ALWAYS AS (CASE WHEN position(E'\x1f' IN key) > 0 THEN split_part(key, E'\x1f', 1) ELSE '' END) STORED;
CREATE INDEX threads_by_tenant ON threads(tenant, key);

ALTER TABLE grants ADD COLUMN tenant text COLLATE "C" NOT NULL
GENERATED ALWAYS AS (CASE WHEN position(E'\x1f' IN id) > 0 THEN split_part(id, E'\x1f', 1) ELSE '' END) STORED;
CREATE INDEX grants_by_tenant ON grants(tenant, created, id);

-- A version that does not know tenants would show the tasks of all of them.
UPDATE treadle_format SET opens = 7;
