-- The last event of a task, and its record's digest, when this row was last written: a journal that ends before it has
-- lost its tail. Written only where the row is written anyway; while a driver is at work the journal goes on behind it.
ALTER TABLE tasks ADD COLUMN mark_seq INTEGER;
ALTER TABLE tasks ADD COLUMN mark_digest BLOB;
UPDATE tasks SET (mark_seq, mark_digest) =
  (SELECT seq, digest FROM records WHERE task = tasks.id ORDER BY seq DESC LIMIT 1) WHERE deleted = 0;
