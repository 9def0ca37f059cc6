import { expect, test } from "bun:test";
import { databasesAt, sharedPostgres } from "../support/postgres.ts";
import { engines, makeHomeAt, startTestServer } from "../support/server.ts";

const password = "grants";

test.if(engines.includes("postgres"))(
  "a server whose role is no superuser needs CREATEROLE for SQL, and says so",
  async () => {
    const shared = await sharedPostgres();
    const databases = databasesAt(shared.url);
    const made = await databases.createDatabase();
    const name = decodeURIComponent(new URL(made).pathname.slice(1));
    const role = `${name}_owner`;
    const strong = new Bun.SQL(shared.url, { max: 1 });
    await strong.unsafe(
      `CREATE ROLE "${role}" LOGIN PASSWORD '${password}'; ALTER DATABASE "${name}" OWNER TO "${role}"`,
    );
    const url = new URL(made);
    url.username = role;
    url.password = password;
    const home = await makeHomeAt(url.href);
    const server = await startTestServer({ engine: "postgres", home });
    try {
      const ask = (query: string) => server.rpc("QueryService", "ExecuteSQL", { query });
      const refused = await ask("SELECT count(*) FROM events");
      expect(refused.body.code).toBe("failed_precondition");
      expect(refused.body.message).toContain(`ALTER ROLE "${role}" CREATEROLE`);
      await strong.unsafe(`ALTER ROLE "${role}" CREATEROLE`);
      expect((await ask("SELECT count(*) FROM events")).body.rows).toEqual([{ values: ["0"] }]);
      const create = await server.rpc("ProjectionService", "CreateSQLProjection", {
        ...{ name: "granted", tableSql: "CREATE TABLE proj_granted (id text)" },
        eventHandlers: { "x.y": "INSERT INTO proj_granted (id) VALUES (:event_id)" },
      });
      expect(create.status).toBe(200);
      const { body } = await server.rpc("SvcService", "Emit", { event: "x.y" });
      const wait = { name: "granted", minSeq: body.sequence, timeout: "20s" };
      expect((await server.rpc("ProjectionService", "WaitProjectionCatchup", wait)).body.caughtUp).toBe(true);
      expect((await ask("SELECT id FROM proj_granted")).body.rows).toEqual([{ values: [body.eventId] }]);
      await server.rpc("ProjectionService", "UnregisterProjection", { name: "granted" });
      expect((await ask("SELECT id FROM proj_granted")).status).toBe(400);
    } finally {
      await server.stop();
      await databases.dropDatabase(made);
      await strong.unsafe(`DROP ROLE IF EXISTS "${role}"`);
      await strong.close();
    }
  },
);

test.if(engines.includes("postgres"))(
  "many environments of a new database begin with SQL at once",
  async () => {
    const databases = databasesAt((await sharedPostgres()).url);
    const made = await databases.createDatabase();
    const server = await startTestServer({ engine: "postgres", home: await makeHomeAt(made) });
    try {
      const keys: string[] = [];
      for (let number = 0; number < 8; number++) {
        const { body } = await server.api("/api/v1/environments", { body: { name: `e${number}` } });
        keys.push((await server.api("/api/v1/apikeys", { body: { name: "k", env_id: body.id } })).body.key);
      }
      const table = { name: "first", tableSql: "CREATE TABLE proj_first (id text)", events: ["a.b"] };
      const answers = await Promise.all(
        keys.map((key) => server.rpc("ProjectionService", "CreateSQLProjection", table, { key })),
      );
      expect(answers.map(({ status, body }) => [status, body.message])).toEqual(
        keys.map(() => [200, undefined]),
      );
    } finally {
      await server.stop();
      await databases.dropDatabase(made);
    }
  },
);
