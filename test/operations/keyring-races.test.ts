import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { type Keyring, openKeyring } from "../../src/domain/access/keyring/service.ts";
import { systemClock } from "../../src/kit/clock.ts";
import { systemIds } from "../../src/kit/ids.ts";
import { silentLog } from "../../src/kit/log.ts";
import { sql } from "../../src/kit/sql.ts";
import { openStore } from "../../src/store/open.ts";
import type { Store } from "../../src/store/store.ts";
import { type Databases, sharedPostgres } from "../support/postgres.ts";
import { patience } from "../support/server.ts";
import { until } from "../support/until.ts";

const clock = systemClock();
const kinds = ["jwt_secret", "platform_jwt_secret", "signing_key", "audit_key"] as const;
const nodes = 3;

describe("nodes that start or rotate at once share one ring", () => {
  let postgres: Databases;
  let databaseUrl: string;
  let stores: Store[];
  beforeAll(async () => {
    postgres = await sharedPostgres();
    databaseUrl = await postgres.createDatabase();
    stores = [];
    for (let node = 0; node < nodes; node++)
      stores.push(await openStore({ clock, log: silentLog, databaseUrl, limits: patience }));
  });
  afterAll(async () => {
    for (const store of stores) await store.close();
    await postgres.dropDatabase(databaseUrl);
  });

  const start = (store: Store): Promise<Keyring> =>
    openKeyring({
      store,
      clock,
      ids: systemIds(clock),
      log: silentLog,
      masterKey: "ab".repeat(32),
      masterFile: "/nowhere",
      given: {},
    });
  const startAll = () => Promise.all(stores.map(start));
  const versions = async () =>
    (
      await stores[0]!.all<{ kind: string; version: number }>(sql`SELECT kind, version FROM keyring
        WHERE kind <> 'master' ORDER BY kind, version`)
    ).map(({ kind, version }) => `${kind}/${version}`);
  /** Ids of the current secret, over all nodes. */
  const current = (rings: readonly Keyring[], kind: (typeof kinds)[number]) =>
    new Set(rings.map((ring) => ring.current(kind).id)).size;

  test("of several first starts one makes each secret", async () => {
    const rings = await startAll();
    expect(await versions()).toEqual([...kinds].sort().map((kind) => `${kind}/1`));
    for (const kind of kinds) expect(current(rings, kind)).toBe(1);
  });

  test("and so does one of several that bring a new kind of secret along", async () => {
    for (let round = 0; round < 3; round++) {
      await stores[0]!.write((session) =>
        session.run(sql`DELETE FROM keyring WHERE kind = 'platform_jwt_secret'`),
      );
      const rings = await startAll();
      expect(await versions()).toEqual([...kinds].sort().map((kind) => `${kind}/1`));
      expect(current(rings, "platform_jwt_secret")).toBe(1);
    }
  });

  test("no rotation is lost to another of the same moment", async () => {
    const rings = await startAll();
    const before = (await versions()).length;
    const secretOf = (at: number) => `rotated-at-the-same-moment-by-node-${at}`;
    await Promise.all(
      rings.map((ring, at) =>
        stores[at]!.write((session) => ring.rotate(session, "jwt_secret", secretOf(at), "usr_1")),
      ),
    );
    const [ring] = await startAll();
    expect(await versions()).toHaveLength(before + nodes);
    expect(rings.map((_, at) => secretOf(at))).toContain(ring!.current("jwt_secret").secret);
  });

  test("nor is one of the master key", async () => {
    const rings = await startAll();
    await Promise.all(
      rings.map((ring, at) =>
        stores[at]!.write((session) => ring.rotate(session, "master_key", `${at}c`.repeat(32), "usr_1")),
      ),
    );
    for (const ring of rings) {
      await ring.refresh();
      await expect(ring.unseal("place", rings[0]!.seal("place", "text"))).resolves.toBe("text");
    }
    expect(await versions()).toContain(`master_next/${nodes}`);
  });

  test("what was sealed before a rotation of the master key is not stored after it", async () => {
    const [rotating, writing] = await startAll();
    const versionOf = (sealed: string) => Number(sealed.split(".")[0]);
    const before = versionOf(writing!.seal("place", "text"));
    const begun = Promise.withResolvers<void>();
    const asked = Promise.withResolvers<void>();
    const rotation = stores[0]!.write(async (session) => {
      await rotating!.rotate(session, "master_key", "5d".repeat(32), "usr_1");
      begun.resolve();
      await asked.promise;
    });
    await begun.promise;
    const answer = writing!.writeSealed(async () => {
      const sealed = writing!.seal("place", "text");
      return { result: sealed, sealed: [sealed] };
    });
    await until(
      async () => {
        const waiting = sql`SELECT pid FROM pg_stat_activity WHERE datname = current_database()
        AND wait_event_type = 'Lock'`;
        return (await stores[2]!.one(waiting)) !== undefined;
      },
      { about: "the other to wait" },
    );
    asked.resolve();
    await rotation;
    const stored = await answer;
    expect(versionOf(stored)).toBe(before + 1);
    expect(await writing!.unseal("place", stored)).toBe("text");
  });
});
