/**
 * `bun run purge-rival.ts <database> <environment>`: removes an environment's rows as the server's own purge does, from a
 * process of its own. What the server's event loop notices of that is not the server's doing.
 */
import { openPurge } from "../../src/domain/access/tenancy/purge.ts";
import { systemClock } from "../../src/kit/clock.ts";
import { silentLog } from "../../src/kit/log.ts";
import { noMetrics } from "../../src/kit/metrics.ts";
import { openStore } from "../../src/store/open.ts";
import type { Store } from "../../src/store/store.ts";
import { anyRow } from "./purge-rows.ts";

const [databaseUrl, environmentId] = process.argv.slice(2);
if (databaseUrl === undefined || environmentId === undefined)
  throw new Error("which database, and which environment?");
const clock = systemClock();
const store = await openStore({ clock, log: silentLog, databaseUrl });
/** The environment is told to be deleted, to this purge alone. */
const told: Store = {
  ...store,
  all: async (query) =>
    query.strings.some((text) => text.includes("FROM deleted_environments"))
      ? ([{ id: environmentId, deleted_at: clock.now() }] as never[])
      : store.all(query),
};
const { duty } = openPurge({ store: told, clock, metrics: noMetrics });
while (await anyRow(store, environmentId)) await clock.sleep((await duty.tick(store.write)).againInMs ?? 0);
await store.close();
process.exit(0);
