/** Texts that reach for what is not the caller's, or for more than a caller may have. */
const places = [
  ...["pg_class", "pg_catalog.pg_class", '"pg_catalog"."pg_class"', 'PG_CATALOG."pg_authid"', "pg_shadow"],
  ...["information_schema.tables", "public.events", '"public"."runs"', 'U&"public".runs', "svc.public.runs"],
  ...["api_keys", "secrets", '"secrets"', "[secrets]", "`secrets`", "main.runs", "temp.runs", "executions"],
  ...["sqlite_master", "sqlite_schema", "main.sqlite_master", "sqlite_temp_master", "sqlite_temp_schema"],
  ...["pragma_database_list", "pragma_table_info('runs')", "pragma_function_list", "dbstat", "fts5vocab"],
  ...[
    '"svc@folds"',
    "generate_series(1, 1000000000)",
    "json_each('[1]')",
    "pg_ls_dir('/')",
    "pg_stat_activity",
  ],
  ...["unnest(ARRAY[1])", "ROWS FROM (now())", "pg_show_all_settings()", "heads", "environments"],
];

const calls = [
  ...["set_config('role', 'postgres', false)", "set_config('statement_timeout', '0', false)", "pg_sleep(10)"],
  ...["query_to_xml('SELECT * FROM public.events', true, true, '')", "dblink('host=localhost', 'SELECT 1')"],
  ...["pg_read_file('/etc/passwd')", "pg_catalog.pg_read_file('/etc/passwd')", "pg_read_binary_file('x')"],
  ...["lo_import('/etc/passwd')", "lo_create(1)", "lo_export(1, '/tmp/x')", "pg_terminate_backend(1)"],
  ...["load_extension('x')", "writefile('/tmp/x', 'y')", "readfile('/etc/passwd')", "randomblob(1000000000)"],
  ...[
    "repeat('x', 100000000)",
    "zeroblob(100000000)",
    "lpad('x', 100000000)",
    "current_setting('data_directory')",
  ],
  ...[
    "pg_advisory_lock(1)",
    "nextval('x')",
    "txid_current()",
    "version()",
    "inet_server_addr()",
    "sqlite_version()",
  ],
  ...["pg_notify('a', 'b')", "xmlparse(document '<a/>')", "format('%s', 1)", "printf('%1000000000d', 1)"],
  ...["current_user", "session_user", "'pg_class'::regclass", "CAST('1' AS oid)", "ROW(1)", "ARRAY[1]"],
];

const statements = [
  ...["COPY events TO '/tmp/x'", "COPY events FROM PROGRAM 'id'", "DO $$ BEGIN PERFORM 1; END $$", "VACUUM"],
  ...["SELECT 1; SELECT 2", "SELECT 1 /* ; */ ; DROP TABLE events", "SELECT 1 -- \n; DELETE FROM events", ""],
  ...[
    "INSERT INTO events VALUES (1)",
    "DELETE FROM events",
    "UPDATE events SET name = 'x'",
    "TRUNCATE events",
  ],
  ...["ATTACH '/etc/passwd' AS x", "DETACH main", "PRAGMA database_list", "PRAGMA writable_schema = 1"],
  ...[
    "SET ROLE postgres",
    "RESET ROLE",
    "SET statement_timeout = 0",
    "BEGIN",
    "COMMIT",
    "LISTEN x",
    "LOCK TABLE events",
  ],
  ...[
    "CREATE TEMP VIEW runs AS SELECT 1",
    "DROP VIEW runs",
    "CREATE TABLE x (a int)",
    "CREATE TABLE y AS SELECT 1",
  ],
  ...[
    "GRANT ALL ON events TO PUBLIC",
    "ALTER ROLE postgres PASSWORD 'x'",
    "PREPARE p AS SELECT 1",
    "EXECUTE p",
  ],
  ...["WITH gone AS (DELETE FROM events RETURNING *) SELECT * FROM gone", "SELECT * INTO x FROM events"],
  ...["EXPLAIN ANALYZE SELECT 1", "EXPLAIN DELETE FROM events", "EXPLAIN (FORMAT json) SELECT 1", "SHOW ALL"],
  ...[
    "SELECT * FROM events FOR UPDATE",
    "CALL x()",
    "MERGE INTO events USING runs ON true WHEN MATCHED THEN DELETE",
  ],
  ...[
    "VACUUM INTO '/tmp/x'",
    "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "SELECT $1",
    "SELECT ?",
  ],
  ...[
    "SELECT (SELECT secret FROM (SELECT * FROM public.secrets) s)",
    "TABLE pg_class",
    "FETCH 1 FROM answer",
  ],
];

/** None of them is ever answered. */
export const forbiddenTexts: readonly string[] = [
  ...statements,
  ...places.map((place) => `SELECT * FROM ${place}`),
  ...places.map((place) => `SELECT (SELECT count(*) FROM ${place}) FROM events`),
  ...places.map((place) => `WITH one AS (SELECT * FROM ${place}) SELECT * FROM one`),
  ...calls.map((call) => `SELECT ${call}`),
  ...calls.map((call) => `SELECT name FROM events WHERE name = CAST(${call} AS text)`),
  ...calls.map((call) => `EXPLAIN SELECT name FROM events ORDER BY ${call}`),
];

/** The same inside a condition or an order of QuerySQLProjection. */
export const forbiddenConditions: readonly string[] = [
  ...calls.map((call) => `${call} = 'x'`),
  ...calls.map((call) => `id = ${call}`),
  ...places.map((place) => `id IN (SELECT * FROM ${place})`),
  ...places.map((place) => `id = 'x' UNION SELECT * FROM ${place}`),
  ...statements.map((statement) => `id = 'x'; ${statement}`),
];

/** And inside a handler. */
export const forbiddenHandlers: readonly string[] = [
  ...statements,
  ...calls.map((call) => `INSERT INTO proj_tried (id) VALUES (CAST(${call} AS text))`),
  ...calls.map((call) => `DELETE FROM proj_tried WHERE id = CAST(${call} AS text)`),
  ...places.map((place) => `DELETE FROM ${place}`),
  ...places.map((place) => `UPDATE proj_tried SET id = (SELECT count(*) FROM ${place})`),
];

const endless = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r)";

/** Queries that are admitted, and never come to an end. */
export const endlessTexts: readonly string[] = [
  `${endless} SELECT count(*) FROM r`,
  `${endless}, few AS (SELECT n FROM r LIMIT 4000) SELECT count(*) FROM few a, few b, few c`,
];

/** Admitted, and a hundred mebibytes and more: 128 KiB a row. */
export const largeText = `WITH RECURSIVE r(n, t) AS (SELECT 1, CAST('x' AS text)
    UNION ALL SELECT n + 1, t || t FROM r WHERE n < 18),
  many(m) AS (SELECT 1 UNION ALL SELECT m + 1 FROM many WHERE m < 1000)
  SELECT t FROM r, many WHERE n = 18`;

/** One row that is larger than any may be. */
export const largeRowText = `WITH RECURSIVE r(n, t) AS (SELECT 1, CAST('x' AS text)
    UNION ALL SELECT n + 1, t || t FROM r WHERE n < 25) SELECT t FROM r WHERE n = 25`;
