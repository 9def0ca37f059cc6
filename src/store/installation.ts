import type { Ids } from "../kit/ids.ts";
import { sql } from "../kit/sql.ts";
import type { Store } from "./store.ts";

const stored = sql`SELECT value FROM installation WHERE name = 'id'`;

/** `ins_…`: the same at every node over this database, and after a restore. The first start makes it. */
export async function installationOf(store: Pick<Store, "one" | "write">, ids: Ids): Promise<string> {
  const known = await store.one<{ value: string }>(stored);
  if (known) return known.value;
  await store.write((session) =>
    session.run(sql`INSERT INTO installation (name, value) VALUES ('id', ${ids.next("ins")})
      ON CONFLICT (name) DO NOTHING`),
  );
  // Another node may have been first.
  return (await store.one<{ value: string }>(stored))!.value;
}
