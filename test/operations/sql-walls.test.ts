import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { systemClock } from "../../src/kit/clock.ts";
import { LibsqlSeat } from "../../src/store/libsql-seat.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import {
  endlessTexts,
  forbiddenConditions,
  forbiddenHandlers,
  forbiddenTexts,
  largeRowText,
  largeText,
} from "../support/sql-attacks.ts";
import { until } from "../support/until.ts";

const mine = "mine-6d1f";
const theirs = "theirs-b40c";
/** As engines read them: with no table of another name in between. */
const rawTexts = forbiddenTexts.filter(
  (text) => !/^(WITH one|EXPLAIN SELECT name|SELECT \(SELECT|SELECT name)|000000/.test(text),
);

describe.each(engines)("what SQL reaches on %s", (engine) => {
  let server: TestServer;
  let other: string;
  let key: string;
  beforeAll(async () => {
    server = await startTestServer({ engine });
    const { body } = await server.api("/api/v1/environments", { body: { name: "theirs" } });
    other = body.id;
    const made = await server.api("/api/v1/apikeys", {
      body: { name: "o", env_id: other, role_ids: ["role_admin"] },
    });
    key = made.body.key;
    for (const [marker, options] of [
      [mine, {}],
      [theirs, { key }],
    ] as const) {
      await server.rpc(
        "SvcService",
        "RegisterFunction",
        { id: marker, name: marker, triggers: [{ event: marker }] },
        options,
      );
      await server.rpc("SvcService", "Emit", { event: marker, data: { marker } }, options);
    }
  }, 120_000);
  afterAll(() => server?.stop());

  const ask = (query: string, more: object = {}, options = {}) =>
    server.rpc("QueryService", "ExecuteSQL", { query, ...more }, options);
  const own = ["runs", "steps", "events", "functions"];

  test("each environment sees its own rows, and not one byte of another's", async () => {
    for (const [options, shown, hidden] of [
      [{}, mine, theirs],
      [{ key }, theirs, mine],
    ] as const) {
      const answers = await Promise.all(
        own.map((table) => ask(`SELECT * FROM ${table}`, { timeout_ms: 25_000 }, options)),
      );
      expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
      const text = JSON.stringify(answers.map(({ body }) => body));
      expect(text).toContain(shown);
      expect(text).not.toContain(hidden);
      expect(text).not.toContain("key" in options ? server.env : other);
    }
  });

  test("no text reaches anything else", async () => {
    const answers = await Promise.all(forbiddenTexts.map((query) => ask(query)));
    const passed = answers.flatMap(({ status, body }, at) =>
      status === 400 && body.code === "invalid_argument" ? [] : [[forbiddenTexts[at], status, body]],
    );
    expect(passed).toEqual([]);
  });

  test("no condition, order, handler or table of a projection reaches anything else", async () => {
    const definition = { name: "tried", tableSql: "CREATE TABLE proj_tried (id text)" };
    const create = (more: object) =>
      server.rpc("ProjectionService", "CreateSQLProjection", { ...definition, ...more });
    const made = await create({ eventHandlers: { "x.y": "INSERT INTO proj_tried (id) VALUES ('a')" } });
    expect(made.status).toBe(200);
    const query = (more: object) =>
      server.rpc("ProjectionService", "QuerySQLProjection", { name: "tried", ...more });
    const tried = [
      ...forbiddenConditions.flatMap((text) => [
        () => query({ where: text }),
        () => query({ orderBy: text }),
      ]),
      ...forbiddenHandlers.map((text) => () => create({ name: "other", eventHandlers: { "x.y": text } })),
      ...forbiddenTexts.map(
        (text) => () => create({ name: "other", tableSql: text, eventHandlers: { "x.y": "" } }),
      ),
    ];
    const answers = await Promise.all(tried.map((one) => one()));
    const passed = answers.filter(({ status, body }) => status !== 400 || body.code !== "invalid_argument");
    expect(passed.map(({ body }) => body)).toEqual([]);
    expect((await query({ where: "id IS NULL" })).status).toBe(200);
  });

  test("what never ends is ended, and what is too large is cut off", async () => {
    for (const query of endlessTexts) {
      const { status, body } = await ask(query, { timeoutMs: 300 });
      expect([query, status, body.code]).toEqual([query, 504, "deadline_exceeded"]);
    }
    const large = await ask(largeText, { maxRows: 1_000, timeoutMs: 30_000 });
    expect([large.status, large.body.truncated]).toEqual([200, true]);
    expect(large.body.rows.length).toBeGreaterThan(100);
    expect(large.body.rows.length * 131_072).toBeLessThanOrEqual(16 * 1024 * 1024);
    const row = await ask(largeRowText, { timeoutMs: 30_000 });
    expect([row.status, row.body.code]).toEqual([429, "resource_exhausted"]);
    expect((await ask("SELECT count(*) FROM events")).status).toBe(200);
  });

  test.if(engine === "libsql")(
    "the process alone reads nothing else, whatever text it is given",
    async () => {
      const { db } = server.home.place;
      const folder = `${db}.environments`;
      await ask("SELECT 1");
      const [file = ""] = readdirSync(folder).filter((name) => name.endsWith(".db"));
      const places = { storeFile: db, file: join(folder, file), environmentId: server.env };
      const open = () =>
        LibsqlSeat.open(systemClock(), { ask: "read", ...places, storeName: "s7c41", ownName: "o94ab" });
      let seat = await open();
      const limits = { values: [], isExplain: false, rowsMax: 1_000, bytesMax: 1e7, timeoutMs: 20_000 };
      const raw = async (text: string) => {
        if (!seat.usable()) seat = await open();
        try {
          const { rows } = await seat.query({ ...limits, text, signal: new AbortController().signal });
          return JSON.stringify(rows);
        } catch (error) {
          return String((error as Error).message);
        }
      };
      expect(await raw("SELECT name FROM events")).toContain(mine);
      for (const text of rawTexts) {
        const said = await raw(text);
        const leaks = [theirs, other, "api_keys (", "s7c41"].filter((secret) => said.includes(secret));
        expect([text, said, leaks]).toEqual([text, said, []]);
      }
      seat.end();
    },
  );

  test.if(engine === "postgres")("the role alone reads nothing else, whatever text it is given", async () => {
    await ask("SELECT 1");
    const strong = new Bun.SQL(server.home.place.databaseUrl!, { max: 1 });
    const [row] = await strong.unsafe("SELECT name FROM environment_databases WHERE environment_id = $1", [
      server.env,
    ]);
    const { name } = row;
    const url = new URL(server.home.place.databaseUrl!);
    url.username = `${name}_r`;
    const role = new Bun.SQL(url.href, {
      max: 1,
      connection: { search_path: name, statement_timeout: "2s" },
    });
    const raw = async (text: string) => {
      try {
        return JSON.stringify(await role.unsafe(text).simple());
      } catch (error) {
        return String((error as Error).message);
      }
    };
    expect(await raw("SELECT name FROM events")).toContain(mine);
    for (const text of [...rawTexts, "SELECT * FROM public.events", "SELECT * FROM public.secrets"]) {
      const said = await raw(`ROLLBACK; ${text}`);
      expect([text, said.includes(theirs)]).toEqual([text, false]);
    }
    for (const text of [
      ...["SET ROLE postgres", "SELECT set_config('role', 'postgres', false)", "SELECT * FROM public.events"],
      ...["SELECT pg_sleep(1)", "SELECT query_to_xml('SELECT 1', true, true, '')", "SELECT lo_create(1)"],
      ...["SELECT pg_read_file('/etc/passwd')", "CREATE TABLE x (a int)", "SELECT pg_advisory_lock(1)"],
      ...["SELECT * FROM pg_authid", "COPY events FROM PROGRAM 'id'"],
    ])
      expect([text, await raw(text)]).toEqual([
        text,
        expect.stringMatching(/denied|must be superuser|read-only/),
      ]);
    await role.close();
    await strong.close();
  });

  test.if(engine === "libsql")(
    "the process that folds writes nothing but its own table, whatever text it is given",
    async () => {
      const file = join(server.home.folder, "own.db");
      const seat = await LibsqlSeat.open(systemClock(), { ask: "write", file });
      const table = { table: "proj_x@g1", name: "proj_x", columns: "id TEXT PRIMARY KEY", position: 0 };
      await seat.ask({ ask: "ensure", ...table, handlers: [] }, 20_000);
      const fold = (text: string) =>
        seat
          .ask(
            {
              ask: "fold",
              table: table.table,
              handlers: [{ text, parameters: 0 }],
              from: 0,
              to: 1,
              steps: [[0, 1]],
            },
            20_000,
          )
          .then((said) => (said.answer === "failed" ? "failed" : "done"), String);
      for (const text of [
        ...[
          `ATTACH '${server.home.place.db}' AS x`,
          "PRAGMA journal_mode = DELETE",
          "DROP TABLE `proj_x@g1`",
        ],
        ...[
          "UPDATE `svc@folds` SET position = 9",
          "DELETE FROM sqlite_schema",
          "INSERT INTO `proj_x@g1` VALUES (load_extension('x'))",
        ],
        ...[
          "VACUUM INTO '/tmp/x'",
          "CREATE TABLE y (a)",
          "INSERT INTO `proj_x@g1` SELECT name FROM sqlite_schema",
        ],
        ...[
          "INSERT INTO `proj_x@g1` SELECT name FROM pragma_database_list",
          "COMMIT",
          "SELECT randomblob(9)",
        ],
      ])
        expect([text, await fold(text)]).toEqual([text, expect.not.stringMatching(/^done$/)]);
      await expect(
        seat.ask(
          { ask: "check", ...table, columns: "id TEXT DEFAULT (hex(randomblob(9)))", handlers: [] },
          20_000,
        ),
      ).rejects.toThrow();
      expect(await fold("INSERT INTO `proj_x@g1` VALUES ('a')")).toBe("done");
      seat.end();
    },
  );

  test.if(engine === "postgres")(
    "the role that folds reads and writes nothing but its own tables",
    async () => {
      await server.rpc("ProjectionService", "CreateSQLProjection", {
        ...{ name: "own", tableSql: "CREATE TABLE proj_own (id text)" },
        eventHandlers: { "x.y": "DELETE FROM proj_own" },
      });
      const strong = new Bun.SQL(server.home.place.databaseUrl!, { max: 1 });
      const [row] = await strong.unsafe("SELECT name FROM environment_databases WHERE environment_id = $1", [
        server.env,
      ]);
      const url = new URL(server.home.place.databaseUrl!);
      url.username = `${row.name}_w`;
      const role = new Bun.SQL(url.href, { max: 1, connection: { search_path: row.name } });
      const raw = (text: string) =>
        role.unsafe(text).then(
          () => "done",
          (error) => String(error.message),
        );
      for (const text of [
        ...[
          "SELECT * FROM public.events",
          "SELECT * FROM events",
          "DELETE FROM public.runs",
          "SELECT pg_sleep(1)",
        ],
        ...[
          "COPY (SELECT 1) TO '/tmp/x'",
          "SET ROLE postgres",
          "CREATE ROLE x",
          "CREATE SCHEMA x",
          "SELECT lo_create(1)",
        ],
        ...["CREATE TABLE public.x (a int)", "SELECT * FROM pg_authid", "CREATE EXTENSION dblink"],
      ])
        expect([text, await raw(text)]).toEqual([text, expect.stringMatching(/denied|must be|permission/i)]);
      expect(await raw('DELETE FROM "proj_own@g1"')).toBe("done");
      await role.close();
      await strong.close();
    },
  );

  test("a deleted environment leaves no schema, no role and no file", async () => {
    expect((await ask("SELECT 1", {}, { key })).status).toBe(200);
    const left = async (): Promise<number> => {
      if (engine === "libsql")
        return readdirSync(`${server.home.place.db}.environments`).filter((name) => name.endsWith(".db"))
          .length;
      const strong = new Bun.SQL(server.home.place.databaseUrl!, { max: 1 });
      const [row] = await strong.unsafe(`SELECT count(*)::int AS count FROM pg_roles r
        WHERE EXISTS (SELECT 1 FROM pg_namespace n WHERE r.rolname IN (n.nspname || '_r', n.nspname || '_w'))`);
      await strong.close();
      return row.count;
    };
    const before = await left();
    expect((await server.api(`/api/v1/environments/${other}`, { method: "DELETE" })).status).toBeLessThan(
      300,
    );
    await until(
      async () => {
        await server.running.tick("tenancy.purge");
        await server.running.tick("query.sweep");
        return (await left()) < before ? true : undefined;
      },
      { about: "the database of the environment to go", deadlineMs: 20_000, everyMs: 200 },
    );
  });
});
