-- `figures`: what lists show of a task (JSON), as it stood when its row was last written with some; `search`: folded text
-- of its input and its outcome. Both are NULL for tasks that no version that knows them has driven.
ALTER TABLE tasks ADD COLUMN figures text;
ALTER TABLE tasks ADD COLUMN search text;

-- Lists are in the order of `created`: each index ends with it, so that a page reads no more rows than it returns.
DROP INDEX tasks_by_thread;
DROP INDEX tasks_by_agent;
CREATE INDEX tasks_by_created ON tasks(created, key);
CREATE INDEX tasks_by_state ON tasks(state, created, key);
CREATE INDEX tasks_by_agent ON tasks(agent, created, key);
CREATE INDEX tasks_by_thread ON tasks(thread, created, key);

CREATE TABLE task_labels (
  name    text COLLATE "C" NOT NULL,
  value   text COLLATE "C" NOT NULL,
  created bigint NOT NULL,
  key     text COLLATE "C" NOT NULL,
  PRIMARY KEY (name, value, created, key)
);
CREATE INDEX task_labels_by_key ON task_labels(key);
INSERT INTO task_labels SELECT j.key, j.value, t.created, t.key
FROM (SELECT * FROM tasks WHERE NOT deleted AND labels <> '{}' AND position('\u0000' IN labels) = 0) t,
json_each_text(t.labels::json) j WHERE length(j.key) <= 200 AND length(j.value) <= 200;

-- A version that does not know `figures` would leave old ones in place.
UPDATE treadle_format SET opens = 5;
