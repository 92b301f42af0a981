-- `drivers.lease`: until when the process is taken for alive by other hosts, microseconds; 0 once it said goodbye.
CREATE TABLE drivers (
  id      INTEGER PRIMARY KEY,
  key     TEXT NOT NULL UNIQUE,
  host    TEXT NOT NULL,
  boot    TEXT NOT NULL,
  pid     INTEGER NOT NULL,
  started INTEGER NOT NULL,
  lease   INTEGER NOT NULL
) STRICT;

-- A deleted task stays as long as forks or a thread need its records. The head is not kept here: a commit would
-- have to write one more page.
CREATE TABLE tasks (
  id       INTEGER PRIMARY KEY,
  key      TEXT NOT NULL UNIQUE,
  agent    TEXT NOT NULL,
  thread   TEXT NOT NULL,
  state    TEXT NOT NULL,
  created  INTEGER NOT NULL,
  epoch    INTEGER NOT NULL,
  driver   INTEGER,
  parent   TEXT,
  base     INTEGER REFERENCES tasks(id),
  base_seq INTEGER NOT NULL,
  labels   TEXT NOT NULL,
  deleted  INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX tasks_by_state ON tasks(state, key);
CREATE INDEX tasks_by_thread ON tasks(thread, key);
CREATE INDEX tasks_by_parent ON tasks(parent) WHERE parent IS NOT NULL;
CREATE INDEX tasks_by_base ON tasks(base) WHERE base IS NOT NULL;

-- Appended in the order of arrival, never WITHOUT ROWID: rows above 1 kB would spill into overflow pages.
-- `blobs`: how many rows of blob_refs belong to it.
CREATE TABLE records (
  pos    INTEGER PRIMARY KEY,
  task   INTEGER NOT NULL REFERENCES tasks(id),
  seq    INTEGER NOT NULL,
  count  INTEGER NOT NULL,
  epoch  INTEGER NOT NULL,
  blobs  INTEGER NOT NULL,
  digest BLOB NOT NULL,
  data   BLOB NOT NULL,
  UNIQUE (task, seq)
) STRICT;

CREATE TABLE blobs (
  id     INTEGER PRIMARY KEY,
  digest TEXT NOT NULL UNIQUE,
  data   BLOB NOT NULL
) STRICT;

CREATE TABLE blob_refs (
  record INTEGER NOT NULL REFERENCES records(pos) ON DELETE CASCADE,
  blob   INTEGER NOT NULL REFERENCES blobs(id),
  PRIMARY KEY (record, blob)
) STRICT, WITHOUT ROWID;
CREATE INDEX blob_refs_by_blob ON blob_refs(blob);

-- A taken item stays as a name, so that sending it again is noticed; its words are in the journal by then.
CREATE TABLE inbox (
  pos     INTEGER PRIMARY KEY,
  task    INTEGER NOT NULL REFERENCES tasks(id),
  key     TEXT NOT NULL,
  kind    TEXT NOT NULL,
  created INTEGER NOT NULL,
  data    TEXT,
  taken   INTEGER NOT NULL DEFAULT 0,
  UNIQUE (task, key)
) STRICT;
CREATE INDEX inbox_waiting ON inbox(task, pos) WHERE taken = 0;

CREATE TABLE threads (
  id      INTEGER PRIMARY KEY,
  key     TEXT NOT NULL UNIQUE,
  version INTEGER NOT NULL
) STRICT;

-- `gone`: the version that took the member out; earlier versions still show it.
CREATE TABLE members (
  thread  INTEGER NOT NULL REFERENCES threads(id),
  version INTEGER NOT NULL,
  task    INTEGER NOT NULL REFERENCES tasks(id),
  seq     INTEGER NOT NULL,
  gone    INTEGER,
  PRIMARY KEY (thread, version)
) STRICT, WITHOUT ROWID;
CREATE INDEX members_by_task ON members(task);
