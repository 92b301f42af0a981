-- `covers`: of a summary, the version up to which it stands for the words of the members before it; else 0.
ALTER TABLE members ADD COLUMN covers INTEGER NOT NULL DEFAULT 0;
