-- `wanted` is from now on a time, in microseconds since 1970, UTC: from when on somebody is to drive the task on. What
-- was 1 is long past, and 0 stays "not at all".
DROP INDEX tasks_wanted;
CREATE INDEX tasks_wanted ON tasks(wanted) WHERE wanted > 0;
