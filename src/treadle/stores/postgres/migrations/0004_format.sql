-- `format`: the journal format that a driver must know to drive the task.
ALTER TABLE tasks ADD COLUMN format bigint NOT NULL DEFAULT 1;
-- `opens`: versions that know this format of the tables, or a later one, may open a schema that a newer version migrated.
ALTER TABLE treadle_format ADD COLUMN opens bigint NOT NULL DEFAULT 4;
