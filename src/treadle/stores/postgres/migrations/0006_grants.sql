-- Approvals that hold for later calls, in a thread (NULL: everywhere), until they are revoked.
CREATE TABLE grants (
  id         text COLLATE "C" PRIMARY KEY,
  tool       text COLLATE "C" NOT NULL,
  definition text NOT NULL,
  rule       text NOT NULL,
  thread     text COLLATE "C",
  given_by   text,
  task       text NOT NULL,
  request    text NOT NULL,
  created    bigint NOT NULL,
  revoked    bigint,
  revoked_by text
);
CREATE INDEX grants_by_tool ON grants(tool, created, id);
CREATE INDEX grants_by_thread ON grants(thread) WHERE thread IS NOT NULL;

-- A version that does not know them would leave those of a deleted thread in place.
UPDATE treadle_format SET opens = 6;
