/**
 * `bun run bench:start [--engine postgres|libsql] [--form sources|executable] [--rounds 5]`
 *
 * A cold start: a server as a user starts it, on a store where nothing is yet, to the end of its first run. The worker is a part of
 * this process, and asks for work as soon as the server answers. `again` is the same on the store that the first one has made. `cpuMs` is
 * what the server's process has computed by then: steadier than the time, where others compute beside it.
 */
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { createClient, createFunction, createWorker } from "../../src/sdk/index.ts";
import { freePort, removeFolder, run } from "../support/process.ts";
import { type EngineName, engines, type Home, makeHome, readKey, spawnServer } from "../support/server.ts";
import { until } from "../support/until.ts";
import { median } from "./figures.ts";
import { treeCpu } from "./processes.ts";

const { values: given } = parseArgs({
  options: {
    engine: { type: "string" },
    form: { type: "string" },
    rounds: { type: "string", default: "5" },
  },
});
const wantedMs: Record<EngineName, Record<string, { cold: number; again: number }>> = {
  postgres: { sources: { cold: 1_100, again: 600 }, executable: { cold: 1_100, again: 600 } },
  libsql: { sources: { cold: 600, again: 600 }, executable: { cold: 400, again: 400 } },
};
const lookMs = 2;

interface Start {
  listeningMs: number;
  completedMs: number;
  cpuMs: number;
}

const quiet = { debug() {}, info() {}, warn() {}, error() {} };

/** In milliseconds since the process was started. */
async function start(engine: EngineName, home: Home, program: readonly string[] | undefined): Promise<Start> {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const startedAt = performance.now();
  const since = () => Math.round(performance.now() - startedAt);
  const form = program && { program };
  const server = await spawnServer({ engine, home, waits: false, settings: { port }, ...form });
  try {
    const answers = () =>
      fetch(`${url}/health`).then(
        ({ ok }) => ok || undefined,
        () => undefined,
      );
    await until(answers, { about: "the server to answer", deadlineMs: 30_000, everyMs: lookMs });
    const listeningMs = since();
    const apiKey = await readKey(home.keyFile);
    const client = createClient({ url, apiKey });
    const first = createFunction({ id: "first", event: "first.event" }, ({ step }) =>
      step.run("one", () => 1),
    );
    const worker = createWorker({ url, apiKey, functions: [first], log: quiet });
    await worker.start();
    const { runIds } = await client.emit("first.event", {});
    const ended = async () => ((await client.getRun(runIds[0]!)).status === "completed" ? true : undefined);
    await until(ended, { about: "the end of the run", deadlineMs: 30_000, everyMs: lookMs });
    const completedMs = since();
    const cpuMs = Math.round(treeCpu(server.pid()) * 1_000);
    await worker.stop();
    return { listeningMs, completedMs, cpuMs };
  } finally {
    await server.stop();
  }
}

const folder = await mkdtemp(join(tmpdir(), "svc-start-"));
const executable = join(folder, "svc");
/** What starts the server, by form. */
const forms: Record<string, readonly string[] | undefined> = { sources: undefined, executable: [executable] };
const formsWanted = Object.keys(forms).filter((name) => given.form === undefined || name === given.form);
if (formsWanted.includes("executable"))
  await run([process.execPath, resolve(import.meta.dir, "../../src/build/binary.ts"), executable]);

let isMissed = false;
for (const engine of engines.filter((name) => given.engine === undefined || name === given.engine))
  for (const form of formsWanted) {
    const rounds: { cold: Start; again: Start }[] = [];
    for (let round = 0; round < Number(given.rounds); round++) {
      const home = await makeHome(engine, { isEmpty: true });
      try {
        const cold = await start(engine, home, forms[form]);
        rounds.push({ cold, again: await start(engine, home, forms[form]) });
      } finally {
        await home.remove();
      }
    }
    for (const name of ["cold", "again"] as const)
      for (const figure of ["listeningMs", "completedMs", "cpuMs"] as const) {
        const all = rounds.map((round) => round[name][figure]);
        const wanted = figure === "completedMs" ? wantedMs[engine][form]![name] : Number.POSITIVE_INFINITY;
        const isOver = median(all) > wanted;
        const said = Number.isFinite(wanted) ? `, wanted ${wanted}${isOver ? "!" : ""}` : "";
        console.log(`${engine} ${form} ${name} ${figure}: ${all.join(" ")}; median ${median(all)}${said}`);
        isMissed ||= isOver;
      }
  }
await removeFolder(folder);
process.exit(isMissed ? 1 : 0);
