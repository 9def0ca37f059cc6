/**
 * `bun run bench:export [--engine postgres|libsql] [--events 1000000]`
 *
 * An export of many events: how much larger the node grows, how fast it is, and what other callers wait meanwhile, beside the
 * same callers before it. The checksum of the file is checked as it comes.
 */
import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { parseArgs } from "node:util";
import { systemClock } from "../../src/kit/clock.ts";
import { silentLog } from "../../src/kit/log.ts";
import { sql } from "../../src/kit/sql.ts";
import { openStore } from "../../src/store/open.ts";
import { askExport, exportPath } from "../support/exports.ts";
import { engines, makeHome, spawnServer } from "../support/server.ts";
import { percentile } from "./figures.ts";

const { values: given } = parseArgs({
  options: { engine: { type: "string" }, events: { type: "string", default: "1000000" } },
});
const eventCount = Number(given.events);
const callers = 4;
const quietMs = 10_000;
const sliceRows = 20_000;

async function fill(place: { db: string; databaseUrl: string | undefined }): Promise<void> {
  const store = await openStore({
    ...{ clock: systemClock(), log: silentLog, file: place.db, databaseUrl: place.databaseUrl },
    ...{ poolSize: 1, hotPoolSize: 1 },
  });
  const digits = (name: string) => sql.raw(`CAST(${name} AS TEXT)`);
  for (let from = 1; from <= eventCount; from += sliceRows) {
    const last = Math.min(eventCount, from + sliceRows - 1);
    await store.write(async (session) => {
      await session.run(sql`INSERT INTO events (environment_id, position, id, name, version, data, source, at)
        WITH RECURSIVE n(i) AS (SELECT CAST(${from} AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < ${last})
        SELECT 'env_default', i, 'evt_' || ${digits("i")}, 'bench.exported', 1,
          '{"number":' || ${digits("i")} || ',"text":"' || ${"x".repeat(200)} || '"}', 'api', 1700000000000 + i FROM n`);
      await session.run(sql`UPDATE heads SET position = ${last}, last_at = 1700000000000 + ${last}
        WHERE environment_id = 'env_default'`);
    });
  }
  await store.close();
}

async function measure(engine: (typeof engines)[number]): Promise<void> {
  const home = await makeHome(engine);
  const first = await spawnServer({ engine, home });
  await first.terminate();
  await fill(home.place);
  const server = await spawnServer({ engine, home });
  try {
    const residentMb = async () => {
      const status = await readFile(`/proc/${server.pid()}/status`, "utf8");
      return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) / 1024;
    };
    let isOn = true;
    let waits: number[] = [];
    let most = 0;
    const calling = Array.from({ length: callers }, async () => {
      while (isOn) {
        const from = performance.now();
        const { status } = await server.rpc("SvcService", "Emit", { event: "bench.other", data: {} });
        if (status !== 200) throw new Error(`an emit was answered ${status}`);
        waits.push(performance.now() - from);
        await Bun.sleep(5);
      }
    });
    const watching = (async () => {
      while (isOn) {
        most = Math.max(most, await residentMb());
        await Bun.sleep(100);
      }
    })();
    const taken = () => {
      const sorted = waits.sort((one, other) => one - other);
      const text = `p50 ${percentile(sorted, 0.5).toFixed(1)} ms, p99 ${percentile(sorted, 0.99).toFixed(1)} ms of ${sorted.length}`;
      waits = [];
      return { text, most: Math.round(most) };
    };
    await Bun.sleep(quietMs);
    const before = taken();

    const from = performance.now();
    const response = await fetch(`${server.url}${exportPath}?include=events`, {
      headers: { authorization: `Bearer ${server.adminKey}` },
    });
    const sum = createHash("sha256");
    let bytes = 0;
    let rest = Buffer.alloc(0);
    for await (const chunk of response.body!) {
      bytes += chunk.length;
      // The last line is held back: it is not in the sum.
      const all = Buffer.concat([rest, chunk]);
      const end = all.lastIndexOf(10, all.length - 2) + 1;
      sum.update(all.subarray(0, end));
      rest = all.subarray(end);
    }
    const seconds = (performance.now() - from) / 1000;
    const during = taken();
    isOn = false;
    await Promise.all([...calling, watching]);
    const told = JSON.parse(rest.toString()) as { counts: { events: number }; sha256: string };
    if (told.sha256 !== sum.digest("hex")) throw new Error("the file was cut");
    const { status } = await askExport(server.url, server.adminKey, "?include=roles");
    console.log(`${engine}: ${told.counts.events} lines, ${(bytes / 1e6).toFixed(0)} MB in ${seconds.toFixed(1)} s (${Math.round(told.counts.events / seconds)}/s)
  other callers before: ${before.text}; during: ${during.text}
  RSS at most ${before.most} MB before, ${during.most} MB during; the next export is answered ${status}`);
  } finally {
    await server.stop();
    await home.remove();
  }
}

for (const engine of engines)
  if (given.engine === undefined || given.engine === engine) await measure(engine);
process.exit(0);
