import { afterAll, beforeEach, describe, expect, test } from "bun:test";
import { type TestClock, testClock } from "../../src/kit/clock.ts";
import { silentLog } from "../../src/kit/log.ts";
import { openClient, type PostgresClient } from "../../src/store/postgres-client.ts";
import { RoomTable } from "../../src/store/postgres-writable.ts";
import { sharedPostgres } from "../support/postgres.ts";
import { until } from "../support/until.ts";
import { clock as systemClock } from "./store.ts";

const limits = { statementMs: 0, lockMs: 2_000, idleInTransactionMs: 60_000, connectMs: 30_000 };
/** More than a commit without a row, which is all that a look leaves there. */
const logBytesMax = 500;
const tables =
  "relname = 'svc_room' OR oid = (SELECT reltoastrelid FROM pg_class WHERE relname = 'svc_room')";

describe("room that is tried by a temporary table", () => {
  let clock: TestClock;
  let client: PostgresClient;
  let room: RoomTable;
  let url: string;
  const undo: (() => unknown)[] = [];

  const connect = (to: string) =>
    openClient({ url: to, clock: systemClock, log: silentLog, applicationName: "room", limits, may: {} });
  const number = async (what: string, from = "") => {
    const [row] = await client.ask(`SELECT (${what})::text AS n ${from}`, [], false);
    return Number(row?.n);
  };
  const bytes = () => number("sum(pg_relation_size(oid))", `FROM pg_class WHERE ${tables}`);

  beforeEach(async () => {
    const postgres = await sharedPostgres();
    url = await postgres.createDatabase();
    clock = testClock();
    client = await connect(url);
    undo.push(() => postgres.dropDatabase(url));
    undo.push(() => client.destroy());
    room = new RoomTable(client, clock);
  });
  afterAll(async () => {
    for (const step of undo.splice(0).reverse()) await step();
  });

  test("is given back with each commit, and goes neither into the catalogs nor into the log", async () => {
    await room.fill();
    expect(await bytes()).toBe(0);
    const written = () => number("pg_current_wal_insert_lsn() - '0/0'");
    // A table that is made and rolled back takes twenty times as much. The server writes for others, too, now and then.
    await until(
      async () => {
        const before = await written();
        await room.fill();
        return (await written()) - before < logBytesMax;
      },
      { about: "a look that leaves next to nothing in the log", everyMs: 1 },
    );
    expect(await bytes()).toBe(0);
  });

  test("is given back although its insert was undone", async () => {
    const failing = {
      ...client,
      ask: (text: string, ...rest: [never[], boolean]) =>
        client.ask(
          text.startsWith("INSERT")
            ? `${text} UNION ALL SELECT (1 / (n - n))::text FROM generate_series(1, 1) n`
            : text,
          ...rest,
        ),
    } as PostgresClient;
    await expect(new RoomTable(failing, clock).fill()).rejects.toThrow("division by zero");
    expect(await bytes()).toBe(0);
  });

  test("comes from a table that is made new before PostgreSQL has to remember much because of it", async () => {
    const oldest = () =>
      number("max(age(relfrozenxid))", `FROM pg_class WHERE relkind IN ('r', 't') AND (${tables})`);
    await room.fill();
    // More than others on the same server commit meanwhile.
    const commits = "BEGIN FOR i IN 1..5000 LOOP PERFORM txid_current(); COMMIT; END LOOP; END";
    await client.ask(`DO $$ ${commits} $$`, [], false);
    const before = await oldest();
    expect(before).toBeGreaterThanOrEqual(5_000);
    await clock.advance(9 * 60_000);
    await room.fill();
    expect(await oldest()).toBeGreaterThan(before);
    // Transactions of other databases of the server may be older than the table for a moment.
    await until(
      async () => {
        await clock.advance(10 * 60_000);
        await room.fill();
        return (await oldest()) < 2_500;
      },
      { about: "a table that was made new" },
    );
  });

  test("is not tried by a role that may make no temporary tables", async () => {
    const name = new URL(url).pathname.slice(1);
    await client.ask(`REVOKE TEMPORARY ON DATABASE "${name}" FROM PUBLIC`, [], false);
    const role = `svc_room_${name}`;
    await client.ask(`CREATE ROLE "${role}" LOGIN`, [], false);
    undo.push(async () => {
      const last = await connect(new URL("/postgres", url).href);
      await last.ask(`DROP ROLE "${role}"`, [], false);
      last.destroy();
    });
    const other = await connect(Object.assign(new URL(url), { username: role }).href);
    const refused = new RoomTable(other, clock);
    await refused.fill();
    await refused.fill();
    other.destroy();
    expect(await number("count(*)", "FROM pg_class WHERE relname = 'svc_room'")).toBe(0);
  });
});
