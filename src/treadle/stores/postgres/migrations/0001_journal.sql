-- Run with `search_path` set to the store's schema. Words of users are TEXT, never JSONB, which refuses some of them.

-- `lease`: until when the process is taken for alive, by the clock of the database; 1970 once it said goodbye.
CREATE TABLE drivers (
  id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  key     text NOT NULL UNIQUE,
  host    text NOT NULL,
  boot    text NOT NULL,
  pid     bigint NOT NULL,
  started bigint NOT NULL,
  lease   timestamptz NOT NULL
);

-- A deleted task stays as long as forks or a thread need its records. `mark_seq`, `mark_digest`: where its journal ended
-- when this row was last written. `turn`: the place of an owned task in its thread: 0 has it, others wait, smallest first.
-- `wanted`: who gave it back asks for somebody to drive it on. The head is not kept here: each commit would leave a dead
-- row behind.
CREATE SEQUENCE task_ids;
CREATE TABLE tasks (
  id          bigint PRIMARY KEY,
  key         text COLLATE "C" NOT NULL UNIQUE,
  agent       text NOT NULL,
  thread      text COLLATE "C" NOT NULL,
  state       text NOT NULL,
  created     bigint NOT NULL,
  epoch       bigint NOT NULL,
  driver      bigint,
  parent      text COLLATE "C",
  base        bigint REFERENCES tasks(id),
  base_seq    bigint NOT NULL,
  labels      text NOT NULL,
  deleted     boolean NOT NULL DEFAULT false,
  mark_seq    bigint,
  mark_digest bytea,
  turn        bigint,
  wanted      boolean NOT NULL DEFAULT false
) WITH (fillfactor = 80);
ALTER SEQUENCE task_ids OWNED BY tasks.id;
CREATE INDEX tasks_by_thread ON tasks(thread, key);
CREATE INDEX tasks_by_agent ON tasks(agent, key);
CREATE INDEX tasks_by_turn ON tasks(thread, turn) WHERE turn IS NOT NULL;
CREATE INDEX tasks_by_driver ON tasks(driver) WHERE driver IS NOT NULL;
CREATE INDEX tasks_wanted ON tasks(key) WHERE wanted;
CREATE INDEX tasks_by_parent ON tasks(parent) WHERE parent IS NOT NULL;
CREATE INDEX tasks_by_base ON tasks(base) WHERE base IS NOT NULL;

-- `blobs`: how many rows of blob_refs belong to it.
CREATE TABLE records (
  task   bigint NOT NULL REFERENCES tasks(id),
  seq    bigint NOT NULL,
  count  bigint NOT NULL,
  epoch  bigint NOT NULL,
  blobs  integer NOT NULL,
  digest bytea NOT NULL,
  data   bytea NOT NULL,
  PRIMARY KEY (task, seq)
);

CREATE TABLE blobs (
  digest text COLLATE "C" PRIMARY KEY,
  data   bytea NOT NULL
);

CREATE TABLE blob_refs (
  task   bigint NOT NULL,
  seq    bigint NOT NULL,
  digest text COLLATE "C" NOT NULL REFERENCES blobs(digest),
  PRIMARY KEY (task, seq, digest),
  FOREIGN KEY (task, seq) REFERENCES records(task, seq) ON DELETE CASCADE
);
CREATE INDEX blob_refs_by_blob ON blob_refs(digest);

-- A taken item stays as a name, so that sending it again is noticed; its words are in the journal by then.
CREATE TABLE inbox (
  pos     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  task    bigint NOT NULL REFERENCES tasks(id),
  key     text COLLATE "C" NOT NULL,
  kind    text NOT NULL,
  created bigint NOT NULL,
  data    text,
  taken   boolean NOT NULL DEFAULT false,
  UNIQUE (task, key)
);
CREATE INDEX inbox_waiting ON inbox(task, pos) WHERE NOT taken;

-- A thread that a task has entered and nobody added to is here with version 0.
CREATE TABLE threads (
  key     text COLLATE "C" PRIMARY KEY,
  version bigint NOT NULL
);

-- `gone`: the version that took the member out; earlier versions still show it.
CREATE TABLE members (
  thread  text COLLATE "C" NOT NULL REFERENCES threads(key),
  version bigint NOT NULL,
  task    bigint NOT NULL REFERENCES tasks(id),
  seq     bigint NOT NULL,
  gone    bigint,
  PRIMARY KEY (thread, version)
);
CREATE INDEX members_by_task ON members(task);
