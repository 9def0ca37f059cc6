/**
 * `bun run bench:lists [--engine postgres|libsql] [--stored 1100000] [--repeat 5]`
 *
 * Lists of an environment with so many stored runs and as many events, as a client sees them, in milliseconds: what an index
 * finds, and what a filter has to look for. The first repetition meets a server that has just started. `scanned` is what a page
 * says that it looked at when that ended it, `rows` what it found.
 */
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { systemClock } from "../../src/kit/clock.ts";
import { silentLog } from "../../src/kit/log.ts";
import { writeCursor } from "../../src/kit/page.ts";
import { openStore } from "../../src/store/open.ts";
import { plant } from "../support/plant.ts";
import { startPostgres } from "../support/postgres.ts";
import { removeFolder } from "../support/process.ts";
import { type Engine, type Round, resultOf, show } from "./figures.ts";
import { grow } from "./grown.ts";
import { type Bench, startBench, stopAll } from "./processes.ts";

const { values: given } = parseArgs({
  options: {
    engine: { type: "string" },
    stored: { type: "string", default: "1100000" },
    repeat: { type: "string", default: "5" },
  },
});
const stored = Number(given.stored);
const repeat = Number(given.repeat);
const targetMs = 100;
/** Rows that few match, older than all others: what has no index is not among the first that a page looks at. */
const rareCount = 3;
/** Failed runs, so that a text of errors is looked for among more than one page looks at. */
const failedCount = 20_000;
const longId = (kind: string, number: string) => `${kind}_0rare${number.padStart(21, "0")}`;

async function plantRare(place: { databaseUrl?: string; file?: string }): Promise<void> {
  const store = await openStore({ ...place, clock: systemClock(), log: silentLog, poolSize: 1 });
  const before = Date.now() - 2 * 3_600_000;
  const own = { environment_id: "'env_default'" };
  const id = (kind: string) => `'${kind}_0rare00000000000000' || substr(CAST(10000000 + n AS TEXT), 2)`;
  const run = {
    ...{ ...own, event_name: "'bench.rare'", mode: "'pull'", function_version: "1", max_attempts: "3" },
    ...{ attempt: "1", execution_seq: "1" },
  };
  await plant(store, "events", rareCount, {
    ...{ ...own, id: id("evt"), name: "'bench.rare'", version: "1", data: "'{}'", source: "'api'" },
    ...{ position: `n - ${stored + rareCount}`, at: `${before} + n` },
  });
  await plant(store, "runs", rareCount, {
    ...{ ...run, id: id("run"), event_id: id("evt"), function_id: "'bench-rare'", status: "'completed'" },
    ...{ created_at: `${before} + n`, updated_at: `${before} + n`, ended_at: `${before} + n` },
  });
  await plant(
    store,
    "runs",
    failedCount,
    {
      ...{ ...run, id: id("run"), event_id: "''", function_id: "'bench-failing'", status: "'failed'" },
      ...{ trouble: "'failed'", error: `'{"message":"card declined","code":"card"}'` },
      ...{ created_at: `${before} + n`, updated_at: `${before} + n`, ended_at: `${before} + n` },
    },
    rareCount + 1,
  );
  await store.close();
}

interface Answer {
  ms: number;
  rows: number;
  scanned: number;
}

function callsOf({ url, key }: Bench) {
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
  async function timed(path: string, body?: object) {
    const since = performance.now();
    const answer = await fetch(`${url}${path}`, {
      headers,
      ...(body && { method: "POST", body: JSON.stringify(body) }),
    });
    const said = (await answer.json()) as Record<string, unknown>;
    if (!answer.ok) throw new Error(`${path}: ${answer.status} ${JSON.stringify(said)}`);
    return { said, ms: performance.now() - since };
  }
  const answerOf = (said: Record<string, unknown>, ms: number, list: string): Answer => ({
    ms,
    rows: ((said[list] as unknown[] | undefined) ?? []).length,
    scanned: Number(said.scanned ?? 0),
  });
  return {
    rpc: (method: string, body: object) => timed(`/svc.v1.SvcService/${method}`, body),
    async runs(body: object): Promise<Answer> {
      const { said, ms } = await timed("/svc.v1.SvcService/ListRuns", { limit: 20, ...body });
      return answerOf(said, ms, "runs");
    },
    async events(query: string): Promise<Answer> {
      const { said, ms } = await timed(`/api/v1/events?limit=20&${query}`);
      return answerOf(said, ms, "events");
    },
    async names(query: string): Promise<Answer> {
      const { said, ms } = await timed(`/api/v1/events/names?${query}`);
      return answerOf(said, ms, "names");
    },
  };
}

/** The cursor of the list in which half of what is stored stands behind it. */
async function middleOf({ rpc }: ReturnType<typeof callsOf>, kind: "run" | "evt"): Promise<string> {
  const half = `run_0${String(Math.floor(stored / 2)).padStart(8, "0")}`;
  const { said } = await rpc("GetRun", { id: half });
  const run = (said.run ?? said) as { createdAt?: string };
  const at = Date.parse(run.createdAt ?? "");
  if (!Number.isInteger(at)) throw new Error(`${half} has no time`);
  return writeCursor({ at, id: half.replace("run_", `${kind}_`) });
}

async function listsOf(calls: ReturnType<typeof callsOf>): Promise<Record<string, () => Promise<Answer>>> {
  const [runs, events] = [await middleOf(calls, "run"), await middleOf(calls, "evt")];
  const search = "no such run";
  return {
    "runs, first page": () => calls.runs({}),
    "runs, from the middle": () => calls.runs({ cursor: runs }),
    "runs, no hit": () => calls.runs({ search }),
    "runs, no hit, from the middle": () => calls.runs({ search, cursor: runs }),
    "runs, exact id": () => calls.runs({ search: longId("run", "1") }),
    "runs, exact id of an event": () => calls.runs({ search: longId("evt", "1") }),
    "runs, beginning of an id": () => calls.runs({ search: "run_00000001" }),
    "runs, function": () => calls.runs({ functionId: "bench-rare" }),
    "runs, text of a function id": () => calls.runs({ search: "bench-rare" }),
    "runs, text of errors": () => calls.runs({ errorText: "declined" }),
    "runs, text of errors, no hit": () => calls.runs({ errorText: "no such error" }),
    "runs, completed": () => calls.runs({ statuses: ["completed"] }),
    "runs, failed": () => calls.runs({ statuses: ["failed"] }),
    "events, first page": () => calls.events(""),
    "events, from the middle": () => calls.events(`cursor=${events}`),
    "events, name, no hit": () => calls.events("name=nothing"),
    "events, name, rare hit": () => calls.events("name=RARE"),
    "events, name, all hit": () => calls.events("name=bench.r"),
    "events, source, no hit": () => calls.events("source=cron"),
    "events, source, no hit, from the middle": () => calls.events(`source=cron&cursor=${events}`),
    "events, search, no hit": () => calls.events("search=nothing"),
    "names of events": () => calls.names(""),
    "names of events, source, no hit": () => calls.names("source=cron"),
  };
}

async function measure(engine: Engine): Promise<void> {
  const postgres = engine === "postgres" ? await startPostgres() : undefined;
  const folder = await mkdtemp(join(tmpdir(), "svc-lists-"));
  const file = join(folder, "svc.db");
  try {
    const databaseUrl = await postgres?.createDatabase();
    const options = { alone: true, file, keyFile: join(folder, "key.json") };
    // The first start lands the migrations and makes the environment.
    await (await startBench(databaseUrl, options)).stop();
    const before = performance.now();
    const place = databaseUrl === undefined ? { file } : { databaseUrl };
    await grow(place, stored);
    await plantRare(place);
    console.log(`${engine}: ${stored} runs stored in ${((performance.now() - before) / 1_000).toFixed(0)} s`);
    const bench = await startBench(databaseUrl, options);
    try {
      const calls = callsOf(bench);
      await calls.rpc("RegisterFunction", { id: "bench-rare", triggers: [{ event: "never.comes" }] });
      const rounds = new Map<string, Round[]>();
      for (let round = 0; round < repeat; round++)
        for (const [name, list] of Object.entries(await listsOf(calls))) {
          const figures = { ...(await list()) };
          rounds.set(name, [...(rounds.get(name) ?? []), { figures, drift: 0 }]);
        }
      for (const [name, each] of rounds)
        console.log(
          show(resultOf(engine, name, each), "one page of 20", [
            { figure: "ms", of: "most", value: { postgres: targetMs, libsql: targetMs } },
          ]),
        );
    } finally {
      await bench.stop();
    }
  } finally {
    await postgres?.stop();
    await removeFolder(folder);
  }
}

const engines: readonly Engine[] = ["postgres", "libsql"];
try {
  for (const engine of engines)
    if (given.engine === undefined || given.engine === engine) await measure(engine);
} finally {
  await stopAll();
}
process.exit(0);
