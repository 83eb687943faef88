-- A project file of format 1, as its dump; application_id and user_version are set by the test.
BEGIN TRANSACTION;
CREATE TABLE event (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    project INTEGER NOT NULL REFERENCES project (number),
    kind TEXT NOT NULL CHECK (kind IN ('reference', 'accepted', 'rejected', 'undo')),
    head TEXT NOT NULL,
    tail TEXT NOT NULL,
    undoes INTEGER UNIQUE REFERENCES event (number),
    who TEXT NOT NULL,
    time TEXT NOT NULL,
    CHECK ((kind = 'undo') = (undoes IS NOT NULL))
);
INSERT INTO "event" VALUES(1,1,'reference','a','b',NULL,'ann','2026-11-16T19:24:05.207Z');
INSERT INTO "event" VALUES(2,1,'reference','c','d',NULL,'ann','2026-11-16T19:24:05.207Z');
INSERT INTO "event" VALUES(3,1,'accepted','x','y',NULL,'ann','2026-11-16T16:20:26.123Z');
INSERT INTO "event" VALUES(4,1,'rejected','x','z',NULL,'ann','2026-11-16T16:20:26.123Z');
INSERT INTO "event" VALUES(5,1,'rejected','x','y',NULL,'bob','2026-11-16T16:21:26.123Z');
INSERT INTO "event" VALUES(6,1,'undo','x','z',4,'ann','2026-11-16T19:24:05.209Z');
CREATE TABLE project (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    description TEXT NOT NULL,
    made TEXT NOT NULL
);
INSERT INTO "project" VALUES(1,'cures','what cures what','2026-11-16T19:24:05.207Z');
CREATE INDEX pair ON event (project, head, tail, number);
CREATE TRIGGER no_change BEFORE UPDATE ON event BEGIN SELECT RAISE(ABORT, 'events do not change'); END;
CREATE TRIGGER no_removal BEFORE DELETE ON event BEGIN SELECT RAISE(ABORT, 'events are not removed'); END;
CREATE VIEW counting AS
    SELECT * FROM event
    WHERE kind <> 'undo' AND NOT EXISTS (SELECT 1 FROM event AS undo WHERE undo.undoes = event.number);
CREATE VIEW decision AS
    SELECT last.*, (
        SELECT number FROM counting AS other
        WHERE other.project = last.project AND other.head = last.head AND other.tail = last.tail
            AND other.number < last.number AND other.who <> last.who
            AND (other.kind = 'rejected') <> (last.kind = 'rejected')
        ORDER BY number DESC LIMIT 1
    ) AS conflict
    FROM counting AS last
    WHERE number = (
        SELECT max(number) FROM counting AS later
        WHERE later.project = last.project AND later.head = last.head AND later.tail = last.tail
    );
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('project',1);
INSERT INTO "sqlite_sequence" VALUES('event',6);
COMMIT;
