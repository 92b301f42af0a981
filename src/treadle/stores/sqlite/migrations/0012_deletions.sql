-- `times`: how often tasks were deleted. A process that sees it grow looks which of the tasks that it knows are gone. No
-- name of a deleted task stays in the file.
CREATE TABLE deletions (times INTEGER NOT NULL);
INSERT INTO deletions VALUES (0);
