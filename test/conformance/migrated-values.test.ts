import { describe, expect, test } from "bun:test";
import { testClock } from "../../src/kit/clock.ts";
import { silentLog } from "../../src/kit/log.ts";
import { sql } from "../../src/kit/sql.ts";
import { migrate } from "../../src/store/migrate.ts";
import { migrations } from "../../src/store/migrations/index.ts";
import { openStore } from "../../src/store/open.ts";
import { engines, makeHome } from "../support/server.ts";

/** Before anything read what stands in definitions. */
const before = 20;
const triggers = [{ event: "e" }, { cron: "* * * * *" }, { cron: "0 * * * *" }];

/** What the doors of the version before let into a definition. */
const odd: Record<string, object> = {
  nothing: {},
  "U+0000": { description: "a\u0000b", metadata: { a: "\u0000", "\u0000": 1 } },
  "half a surrogate": { metadata: { "\udc00": "\ud800" } },
  "escaped escapes": { description: '\\u0000 \\\\u0000 \\" \\\\" \\', metadata: { "\\": '"cron":"' } },
  "a key of its own": { metadata: { cron: "* * * * *", triggers: [{ cron: "x" }] } },
};

const definition = (more: object) => JSON.stringify({ triggers, ...more });

describe.each(engines)("what a tenant wrote stops no migration on %s", (engine) => {
  test("functions are counted whatever their definitions hold", async () => {
    const home = await makeHome(engine, { isEmpty: true });
    const clock = testClock();
    const { databaseUrl, db: file } = home.place;
    const old = migrations.filter(({ version }) => version <= before);
    const context = { clock, log: silentLog };
    const store = await openStore({ ...context, databaseUrl, file, poolSize: 2, migrations: old });
    try {
      for (const [id, more] of Object.entries(odd))
        await store.write((session) =>
          session.run(sql`INSERT INTO functions (environment_id, id, slug, name, status, mode, version, definition,
              created_at, updated_at)
            VALUES ('env_a', ${id}, ${id}, ${id}, 'active', 'pull', 1, ${definition({ id, ...more })}, 0, 0)`),
        );
      await migrate(store, migrations, context);
      const found = await store.all<{ id: string; cron_count: number }>(
        sql`SELECT id, cron_count FROM functions ORDER BY id`,
      );
      expect(Object.fromEntries(found.map(({ id, cron_count }) => [id, cron_count]))).toEqual(
        Object.fromEntries(Object.keys(odd).map((id) => [id, 2])),
      );
    } finally {
      await store.close();
      await home.remove();
    }
  });
});
