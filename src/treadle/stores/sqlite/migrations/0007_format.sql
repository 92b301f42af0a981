-- `format`: the journal format that a driver must know to drive the task.
ALTER TABLE tasks ADD COLUMN format INTEGER NOT NULL DEFAULT 1;
-- `opens`: versions that know this format of the tables, or a later one, may open a file that a newer version migrated.
CREATE TABLE compatible (opens INTEGER NOT NULL);
INSERT INTO compatible VALUES (7);
