-- What a process asks for when it looks for tasks to adopt: each index ends in the order in which it takes them, so that
-- it reads no task that it may not take. `tasks_wanted` stays for the version before.
CREATE INDEX tasks_ready ON tasks(agent, format, tenant, id) WHERE wanted = 1 AND driver IS NULL AND parent IS NULL
AND NOT deleted AND state NOT IN ('completed', 'degraded', 'failed', 'cancelled');
CREATE INDEX tasks_due ON tasks(agent, format, wanted, tenant) WHERE wanted > 1 AND driver IS NULL AND parent IS NULL
AND NOT deleted AND state NOT IN ('completed', 'degraded', 'failed', 'cancelled');
CREATE INDEX tasks_wanted_children ON tasks(wanted, id) WHERE wanted > 0 AND driver IS NULL AND parent IS NOT NULL
AND NOT deleted AND state NOT IN ('completed', 'degraded', 'failed', 'cancelled');
