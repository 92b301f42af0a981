-- `turn`: the place of an owned task in its thread: 0 has the thread, others wait for it, smallest first.
ALTER TABLE tasks ADD COLUMN turn INTEGER;
CREATE INDEX tasks_by_turn ON tasks(thread, turn) WHERE turn IS NOT NULL;
