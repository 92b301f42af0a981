-- `wanted` is from now on a time, in microseconds since 1970, UTC: from when on somebody is to drive the task on. 1 is
-- long past, 0 is "not at all".
DROP INDEX tasks_wanted;
ALTER TABLE tasks ALTER COLUMN wanted DROP DEFAULT;
ALTER TABLE tasks ALTER COLUMN wanted TYPE bigint USING wanted::int;
ALTER TABLE tasks ALTER COLUMN wanted SET DEFAULT 0;
CREATE INDEX tasks_wanted ON tasks(wanted) WHERE wanted > 0;
