import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { silentLog } from "../../src/kit/log.ts";
import { column, type Sql, sql } from "../../src/kit/sql.ts";
import { openPostgres, type PostgresOptions } from "../../src/store/postgres.ts";
import { OldPrimary } from "../../src/store/postgres-lineage.ts";
import { Primary } from "../../src/store/postgres-primary.ts";
import type { Flush, Session, Store } from "../../src/store/store.ts";
import { livedTime } from "../support/lived.ts";
import { type PostgresServer, startPostgres } from "../support/postgres.ts";
import { until } from "../support/until.ts";
import { clock, troubleOf } from "./store.ts";

const add: Flush<string[], { id: string }> = {
  name: "rows.add",
  postgres: (ids, seams) =>
    sql`INSERT INTO rows (id, n) SELECT item.id, 0 FROM ${seams.rowsFrom("item", { id: column.text(ids) })} ORDER BY item.id RETURNING id`,
  libsql: () => [],
};

const deferred = () => {
  let open = () => {};
  const promise = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { promise, open };
};

describe("Postgres when things go wrong", () => {
  let server: PostgresServer;
  let url: string;
  let store: Store;
  const uncaught: unknown[] = [];
  const note = (error: unknown) => void uncaught.push(error);
  const open = (options: Partial<PostgresOptions> = {}) =>
    openPostgres({ url, clock, log: silentLog, ...options });
  /** One that lets transactions idle: the test may be held up while it holds something. */
  const patient = () => open({ limits: { idleInTransactionMs: 60_000, lockMs: 60_000 } });
  const fresh = (...ids: string[]) =>
    store.write(async (session) => {
      for (const id of ids) await session.run(sql`INSERT INTO rows (id, n) VALUES (${id}, 0)`);
    });
  const lock = (session: Session, id: string, how: Sql = session.seams.holdRow) =>
    session.all<{ id: string }>(sql`SELECT id FROM rows WHERE id = ${id} ${how}`);
  const waiting = async () =>
    (
      await store.one<{ n: number }>(
        sql`SELECT count(*) AS n FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`,
      )
    )?.n ?? 0;
  const ids = async () => (await store.all<{ id: string }>(sql`SELECT id FROM rows`)).map((row) => row.id);

  beforeAll(async () => {
    process.on("uncaughtException", note);
    process.on("unhandledRejection", note);
    server = await startPostgres();
    url = await server.createDatabase();
    store = await open();
    await store.write((session) =>
      session.run(sql`CREATE TABLE rows (id TEXT PRIMARY KEY, n BIGINT NOT NULL)`),
    );
  }, 90_000);
  afterAll(async () => {
    await store.close();
    await server.stop();
    process.off("uncaughtException", note);
    process.off("unhandledRejection", note);
    expect(uncaught).toEqual([]);
  });

  test("what is cut off because a newer primary is heard of says so, also between two statements", async () => {
    const primary = new Primary({ url, clock, log: silentLog });
    const own = await open({ primary });
    const writing = own.write(async (session) => {
      await session.run(sql`INSERT INTO rows (id, n) VALUES ('lost-to-old', 0)`);
      const { known } = primary.lineage;
      primary.lineage.heard({ ...known!, timeline: known!.timeline + 1 });
      await new Promise(() => {});
    });
    await expect(writing).rejects.toBeInstanceOf(OldPrimary);
    await own.close();
  });

  test("skipLocked passes by what another holds, at once", async () => {
    await fresh("skip-a", "skip-b");
    const held = deferred();
    const holding = deferred();
    const slow = await patient();
    const holder = slow.write(async (session) => {
      await lock(session, "skip-a");
      holding.open();
      await held.promise;
    });
    await holding.promise;
    const free = await store.write((session) =>
      session.all(sql`SELECT id FROM rows WHERE id LIKE ${"skip-%"} ORDER BY id ${session.seams.skipLocked}`),
    );
    held.open();
    await holder;
    await slow.close();
    expect(free).toEqual([{ id: "skip-b" }]);
  });

  test("shareRow lets others read so too, and keeps writers away until the end", async () => {
    await fresh("shared");
    const held = deferred();
    const holding = deferred();
    const share = (session: Session) => lock(session, "shared", session.seams.shareRow);
    const slow = await patient();
    const holder = slow.write(async (session) => {
      await share(session);
      holding.open();
      await held.promise;
      return (await session.one<{ n: number }>(sql`SELECT n FROM rows WHERE id = 'shared'`))?.n;
    });
    await holding.promise;
    expect(await store.write(share)).toEqual([{ id: "shared" }]);
    let changed = false;
    const writer = slow
      .write((session) => session.run(sql`UPDATE rows SET n = 1 WHERE id = 'shared'`))
      .then(() => {
        changed = true;
      });
    await until(async () => (await waiting()) > 0, { about: "a waiting writer" });
    expect(changed).toBe(false);
    held.open();
    expect(await holder).toBe(0);
    await writer;
    await slow.close();
  });

  test("a lock that is not had within two seconds is a lock timeout", async () => {
    await fresh("locked");
    const held = deferred();
    const holding = deferred();
    const slow = await patient();
    const holder = slow.write(async (session) => {
      await lock(session, "locked");
      holding.open();
      await held.promise;
    });
    await holding.promise;
    const lived = await livedTime();
    const trouble = await troubleOf(store.write((session) => lock(session, "locked")));
    expect(trouble.trouble).toBe("lock_timeout");
    expect(lived.now()).toBeLessThan(3_500);
    await lived.stop();
    held.open();
    await holder;
    await slow.close();
  });

  test("a deadlock is settled and its victim tried again", async () => {
    await fresh("dead-a", "dead-b");
    const slow = await patient();
    let attempts = 0;
    let begun = 0;
    const both = deferred();
    const cross = (one: string, other: string) =>
      slow.write(async (session) => {
        attempts++;
        await session.run(sql`UPDATE rows SET n = n + 1 WHERE id = ${one}`);
        if (++begun === 2) both.open();
        // Each has its own before it asks for the other's.
        await both.promise;
        await session.run(sql`UPDATE rows SET n = n + 1 WHERE id = ${other}`);
      });
    await Promise.all([cross("dead-a", "dead-b"), cross("dead-b", "dead-a")]);
    await slow.close();
    expect(attempts).toBeGreaterThan(2);
    expect(await store.all(sql`SELECT n FROM rows WHERE id LIKE ${"dead-%"}`)).toEqual([{ n: 2 }, { n: 2 }]);
  });

  test("interactive writes that are stuck do not stop flushes", async () => {
    const held = deferred();
    const slow = await patient();
    const stuck = Array.from({ length: 8 }, () =>
      slow.write(async () => {
        await held.promise;
      }),
    );
    await slow.flush(add, ["hot-a", "hot-b"]);
    held.open();
    await Promise.all(stuck);
    await slow.close();
  });

  test("backends that are killed inside transactions end those calls only", async () => {
    for (let round = 0; round < 30; round++) {
      const id = `killed-${round}`;
      const trouble = await troubleOf(
        store.write(async (session) => {
          await session.run(sql`INSERT INTO rows (id, n) VALUES (${id}, 0)`);
          const row = await session.one<{ pid: number }>(sql`SELECT pg_backend_pid() AS pid`);
          const killing = store.all(sql`SELECT pg_terminate_backend(${row?.pid ?? 0})`);
          if (round % 3 === 0) await killing;
          if (round % 3 === 1) await Promise.all([killing, session.run(sql`SELECT pg_sleep(5)`)]);
          for (;;) await session.run(sql`SELECT 1`);
        }),
      );
      expect(trouble.trouble).toBe("unavailable");
    }
    expect((await ids()).filter((id) => id.startsWith("killed"))).toEqual([]);
    expect(uncaught).toEqual([]);
  }, 90_000);

  test("after a restart of the server calls are answered again; during the outage they are refused soon", async () => {
    await Promise.all(Array.from({ length: 4 }, (_, place) => store.flush(add, [`before-${place}`])));
    const restart = server.restart();
    const lived = await livedTime();
    let slowestMs = 0;
    let refused = 0;
    let calls = 0;
    const call = async () => {
      const startedAt = lived.now();
      const trouble = await store.flush(add, [`during-${++calls}`]).then(
        () => undefined,
        (error) => troubleOf(Promise.reject(error)),
      );
      slowestMs = Math.max(slowestMs, lived.now() - startedAt);
      if (trouble) expect(trouble.trouble).toBe("unavailable");
      if (trouble) refused++;
      return trouble === undefined;
    };
    await until(async () => !(await call()), { about: "a refusal during the restart" });
    await until(call, { about: "a flush after the restart" });
    await restart;
    expect(slowestMs).toBeLessThan(5_000);
    await lived.stop();
    await Promise.all(Array.from({ length: 12 }, () => store.ping()));
    await store.write((session) => session.run(sql`SELECT 1`));
    expect(refused).toBeGreaterThan(0);
    expect(await ids()).toContain("before-3");
  }, 90_000);

  test("a crash of the server loses nothing that was acknowledged", async () => {
    const acked: string[] = [];
    let running = true;
    const write = async (lane: number) => {
      for (let place = 0; running; place++) {
        const id = `acked-${lane}-${place}`;
        try {
          await store.flush(add, [id]);
          acked.push(id);
        } catch {
          return;
        }
      }
    };
    const writers = [write(1), write(2), write(3)];
    await until(() => acked.length > 50, { about: "acknowledged rows" });
    await server.kill9();
    running = false;
    await Promise.all(writers);
    await server.restart();
    const there = new Set(await until(ids, { about: "the server to answer again" }));
    expect(acked.filter((id) => !there.has(id))).toEqual([]);
  }, 90_000);

  test("a server that is not there is unavailable, soon", async () => {
    const lived = await livedTime();
    const nowhere = open({ url: "postgres://postgres@127.0.0.1:1/none" });
    expect((await troubleOf(nowhere)).trouble).toBe("unavailable");
    const silent = Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data() {} } });
    const mute = open({
      url: `postgres://postgres@127.0.0.1:${silent.port}/none`,
      limits: { connectMs: 500 },
    });
    expect((await troubleOf(mute)).trouble).toBe("unavailable");
    silent.stop(true);
    const rude = Bun.listen({
      hostname: "127.0.0.1",
      port: 0,
      socket: { open: (socket) => void socket.end(), data() {} },
    });
    const hungUp = open({
      url: `postgres://postgres@127.0.0.1:${rude.port}/none`,
      limits: { connectMs: 500 },
    });
    expect((await troubleOf(hungUp)).trouble).toBe("unavailable");
    rude.stop(true);
    expect(lived.now()).toBeLessThan(4_000);
    await lived.stop();
  });

  test("a server that acknowledges before it writes is refused, unless that is asked for", async () => {
    const lax = `${url}?synchronous_commit=off`;
    await expect(open({ url: lax })).rejects.toThrow("synchronous_commit is off");
    const warned: string[] = [];
    const accepted = await open({
      url: lax,
      acceptAsyncCommit: true,
      log: { ...silentLog, warn: (event) => void warned.push(event) },
    });
    await accepted.close();
    expect(warned).toEqual(["store.async_commit"]);
  });

  test("texts that never come again are not prepared; those that do are, up to a bound", async () => {
    const one = await open({ poolSize: 1, hotPoolSize: 1 });
    for (let count = 1; count <= 450; count++) {
      const list = sql.list(Array.from({ length: count }, (_, place) => `x${place}`));
      for (let round = 0; round < (count % 2 ? 1 : 3); round++)
        await one.all(sql`SELECT id FROM rows WHERE id IN ${list}`);
    }
    const row = await one.one<{ count: number }>(sql`SELECT count(*) AS count FROM pg_prepared_statements`);
    expect(row?.count).toBeGreaterThan(200);
    expect(row?.count).toBeLessThan(410);
    await one.close();
  }, 90_000);

  test("a flush gives its connection up long before a report would", async () => {
    const asked = sql`SELECT current_setting('statement_timeout') AS allowed`;
    const hello: Flush<null, { allowed: string }> = {
      name: "hello",
      postgres: () => asked,
      libsql: () => [],
    };
    expect([...(await store.flush(hello, null)), await store.one(asked)]).toEqual([
      { allowed: "10s" },
      { allowed: "30s" },
    ]);
  });
});
