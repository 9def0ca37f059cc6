/** Single-row commits a second with so many callers: what the store can do at all. Prints one JSON line. */
import Database from "libsql";
import postgres from "postgres";
import { percentile } from "./figures.ts";

const {
  databaseUrl,
  file,
  seconds,
  callers = 64,
} = JSON.parse(process.argv[2]!) as {
  databaseUrl?: string;
  file?: string;
  seconds: number;
  callers?: number;
};
const warmMs = 300;
const text = JSON.stringify({ customer: "c-1042", total: 42.5, note: "x".repeat(200) });
const tookMs: number[] = [];

/** A commit may resolve at once (libSQL) or later; callers queue for it all the same. */
async function measure(commit: () => unknown): Promise<number> {
  let commits = 0;
  const countAt = performance.now() + warmMs;
  const endAt = countAt + seconds * 1000;
  const caller = async () => {
    for (;;) {
      const askedAt = performance.now();
      if (askedAt >= endAt) return;
      await commit();
      const now = performance.now();
      if (now < countAt || now >= endAt) continue;
      commits++;
      tookMs.push(now - askedAt);
    }
  };
  await Promise.all(Array.from({ length: callers }, caller));
  return commits / seconds;
}

let perS: number;
if (databaseUrl !== undefined) {
  const sql = postgres(databaseUrl, { max: callers, onnotice: () => {} });
  await sql.unsafe("CREATE TABLE IF NOT EXISTS floor (id BIGSERIAL PRIMARY KEY, data TEXT NOT NULL)");
  await Promise.all(Array.from({ length: callers }, () => sql`SELECT 1`));
  perS = await measure(() => sql`INSERT INTO floor (data) VALUES (${text})`);
  await sql.end();
} else {
  const database = new Database(file!);
  database.exec("PRAGMA journal_mode = WAL");
  database.exec("PRAGMA synchronous = FULL");
  database.exec("CREATE TABLE IF NOT EXISTS floor (id INTEGER PRIMARY KEY, data TEXT NOT NULL)");
  const insert = database.prepare("INSERT INTO floor (data) VALUES (?)");
  // Callers queue before the one writer; each commits alone and yields to the next.
  perS = await measure(async () => {
    await new Promise((next) => setImmediate(next));
    insert.run(text);
  });
  database.close();
}
tookMs.sort((a, b) => a - b);
const answer = {
  perS,
  p50: percentile(tookMs, 0.5),
  p95: percentile(tookMs, 0.95),
  p99: percentile(tookMs, 0.99),
};
process.stdout.write(`${JSON.stringify(answer)}\n`);
process.exit(0);
