-- Approvals that hold for later calls, in a thread (NULL: everywhere), until they are revoked.
CREATE TABLE grants (
  id         TEXT PRIMARY KEY,
  tool       TEXT NOT NULL,
  definition TEXT NOT NULL,
  rule       TEXT NOT NULL,
  thread     TEXT,
  given_by   TEXT,
  task       TEXT NOT NULL,
  request    TEXT NOT NULL,
  created    INTEGER NOT NULL,
  revoked    INTEGER,
  revoked_by TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX grants_by_tool ON grants(tool, created, id);
CREATE INDEX grants_by_thread ON grants(thread) WHERE thread IS NOT NULL;

-- A version that does not know them would leave those of a deleted thread in place.
UPDATE compatible SET opens = 9;
