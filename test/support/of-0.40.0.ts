import { readFile } from "node:fs/promises";
import { resolve } from "node:path";
import { drivers } from "../../src/store/libsql-drivers.ts";
import { sharedPostgres } from "./postgres.ts";
import { type EngineName, type Home, makeHomeAt } from "./server.ts";

/** Where a company's database sorts by another locale than C. */
const icuLocale = "en-US";

/** An empty database of its own; on PostgreSQL one that sorts by the rules of a language. */
export async function emptyHome(engine: EngineName): Promise<Home> {
  const databases = engine === "postgres" ? await sharedPostgres() : undefined;
  const databaseUrl = await databases?.createDatabase({ icuLocale });
  const home = await makeHomeAt(databaseUrl);
  return {
    ...home,
    async remove() {
      if (databaseUrl !== undefined) await databases?.dropDatabase(databaseUrl);
      await home.remove();
    },
  };
}

/** Runs statements on a database besides the store. */
export async function runOn({ place }: Home, text: string): Promise<void> {
  if (place.databaseUrl === undefined) {
    const connection = (await drivers.libsql())(place.db, 1_000);
    connection.exec(text);
    connection.close();
    return;
  }
  const client = new Bun.SQL(place.databaseUrl, { max: 1 });
  await client.unsafe(text).simple();
  await client.close();
}

/**
 * A database as 0.40.0 made one, on PostgreSQL before it changed how its columns sort. The files were written from the
 * catalogs of that version's databases (commit cd3b9f12), and change no more.
 */
export async function homeOf040(engine: EngineName): Promise<Home> {
  const home = await emptyHome(engine);
  const file = resolve(import.meta.dir, `../conformance/of-0.40.0.${engine}.sql`);
  await runOn(home, `BEGIN;\n${await readFile(file, "utf8")}COMMIT`);
  return home;
}
