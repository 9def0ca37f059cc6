/** Single-row commits a second with 64 callers: what the store can do at all. Prints one JSON line. */
import Database from "libsql";
import postgres from "postgres";

const { databaseUrl, file, seconds } = JSON.parse(process.argv[2]!) as {
  databaseUrl?: string;
  file?: string;
  seconds: number;
};
const callers = 64;
const text = JSON.stringify({ customer: "c-1042", total: 42.5, note: "x".repeat(200) });
let commits = 0;
let startedAt = 0;

if (databaseUrl !== undefined) {
  const sql = postgres(databaseUrl, { max: callers, onnotice: () => {} });
  await sql.unsafe("CREATE TABLE IF NOT EXISTS floor (id BIGSERIAL PRIMARY KEY, data TEXT NOT NULL)");
  await Promise.all(Array.from({ length: callers }, () => sql`SELECT 1`));
  startedAt = performance.now();
  const endAt = startedAt + seconds * 1000;
  const caller = async () => {
    for (; performance.now() < endAt; commits++) await sql`INSERT INTO floor (data) VALUES (${text})`;
  };
  await Promise.all(Array.from({ length: callers }, caller));
  await sql.end();
} else {
  const database = new Database(file!);
  database.exec("PRAGMA journal_mode = WAL");
  database.exec("PRAGMA synchronous = FULL");
  database.exec("CREATE TABLE IF NOT EXISTS floor (id INTEGER PRIMARY KEY, data TEXT NOT NULL)");
  const insert = database.prepare("INSERT INTO floor (data) VALUES (?)");
  startedAt = performance.now();
  const endAt = startedAt + seconds * 1000;
  // Callers queue before the one writer; each commits alone and yields to the next.
  const caller = async () => {
    for (; performance.now() < endAt; commits++) {
      insert.run(text);
      await new Promise((next) => setImmediate(next));
    }
  };
  await Promise.all(Array.from({ length: callers }, caller));
  database.close();
}
process.stdout.write(`${JSON.stringify({ perS: (commits / (performance.now() - startedAt)) * 1000 })}\n`);
process.exit(0);
