-- `wanted`: who gave the task back asks for somebody to drive it on.
ALTER TABLE tasks ADD COLUMN wanted INTEGER NOT NULL DEFAULT 0;
CREATE INDEX tasks_wanted ON tasks(id) WHERE wanted = 1;
CREATE INDEX tasks_by_driver ON tasks(driver) WHERE driver IS NOT NULL;
