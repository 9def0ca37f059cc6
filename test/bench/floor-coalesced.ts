/**
 * Rows a second that the store commits when 64 callers of one row each come together: while one insert commits the next
 * gathers. A bare table with the keys that a log of topics needs, and no server in between. Prints one JSON line.
 */
import Database from "libsql";
import postgres from "postgres";
import { combine } from "../../src/kit/combine.ts";

const { databaseUrl, file, seconds } = JSON.parse(process.argv[2]!) as {
  databaseUrl?: string;
  file?: string;
  seconds: number;
};
const callers = 64;
const warmMs = 300;
const data = JSON.stringify({ at: 1_700_000_000_000.12, customer: "c-1042", total: 42.5, note: "bench" });
const ddl = [
  `CREATE TABLE IF NOT EXISTS coalesced (environment_id TEXT NOT NULL, position BIGINT NOT NULL, id TEXT NOT NULL,
    topic TEXT NOT NULL, data TEXT NOT NULL, at BIGINT NOT NULL, PRIMARY KEY (environment_id, position))`,
  "CREATE INDEX IF NOT EXISTS coalesced_by_topic ON coalesced (environment_id, topic, position)",
];
let position = 0;

type Insert = (rows: readonly number[]) => unknown;

async function onPostgres(url: string): Promise<Insert> {
  const sql = postgres(url, { max: 1, onnotice: () => {} });
  for (const text of ddl) await sql.unsafe(text);
  const [row] = await sql<{ last: number }[]>`SELECT COALESCE(max(position), 0)::int AS last FROM coalesced`;
  position = row!.last;
  return (rows) =>
    sql`INSERT INTO coalesced SELECT 'env', p, 'evt_' || p, 'bench', ${data}, p FROM unnest(${rows as number[]}::bigint[]) p`;
}

function onLibsql(path: string): Insert {
  const database = new Database(path);
  database.exec("PRAGMA journal_mode = WAL");
  database.exec("PRAGMA synchronous = FULL");
  for (const text of ddl) database.exec(text);
  position = Number(
    (database.prepare("SELECT max(position) AS last FROM coalesced").get() as { last: number }).last,
  );
  const insert = database.prepare(
    "INSERT INTO coalesced SELECT 'env', value, 'evt_' || value, 'bench', ?, value FROM json_each(?)",
  );
  return async (rows) => {
    // Callers queue before the one writer.
    await new Promise((next) => setImmediate(next));
    insert.run(data, JSON.stringify(rows));
  };
}

const insert = databaseUrl === undefined ? onLibsql(file!) : await onPostgres(databaseUrl);
const combiner = combine<undefined, void>({
  name: "floor",
  lanes: 1,
  laneOf: () => 0,
  itemsMax: 1_000,
  waitingMax: 100_000,
  isOfItem: () => false,
  async flush(items) {
    await insert(items.map(() => ++position));
    return items.map(() => ({ value: undefined }));
  },
});

let rows = 0;
const countAt = performance.now() + warmMs;
const endAt = countAt + seconds * 1000;
await Promise.all(
  Array.from({ length: callers }, async () => {
    while (performance.now() < endAt) {
      await combiner.submit(undefined);
      const now = performance.now();
      if (now >= countAt && now < endAt) rows++;
    }
  }),
);
process.stdout.write(`${JSON.stringify({ perS: rows / seconds })}\n`);
process.exit(0);
