-- `figures`: what lists show of a task (JSON), as it stood when its row was last written with some; `search`: folded text
-- of its input and its outcome. Both are NULL for tasks that no version that knows them has driven.
ALTER TABLE tasks ADD COLUMN figures TEXT;
ALTER TABLE tasks ADD COLUMN search TEXT;

-- Lists are in the order of `created`: each index ends with it, so that a page reads no more rows than it returns.
DROP INDEX tasks_by_state;
DROP INDEX tasks_by_thread;
CREATE INDEX tasks_by_created ON tasks(created, key);
CREATE INDEX tasks_by_state ON tasks(state, created, key);
CREATE INDEX tasks_by_agent ON tasks(agent, created, key);
CREATE INDEX tasks_by_thread ON tasks(thread, created, key);

CREATE TABLE task_labels (
  name    TEXT NOT NULL,
  value   TEXT NOT NULL,
  created INTEGER NOT NULL,
  key     TEXT NOT NULL,
  PRIMARY KEY (name, value, created, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX task_labels_by_key ON task_labels(key);
INSERT INTO task_labels SELECT j.key, j.value, t.created, t.key FROM tasks t, json_each(t.labels) j WHERE t.deleted = 0;

-- A version that does not know `figures` would leave old ones in place.
UPDATE compatible SET opens = 8;
