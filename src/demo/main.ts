import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { type Client, createClient, SvcError } from "../sdk/index.ts";
import type { Commit } from "./classify.ts";
import { historyOf } from "./commits.ts";
import { type CommitResult, eventName } from "./handle-commit.ts";
import { type JournalEntry, readLines, summarize } from "./journal.ts";
import { type Server, startServer, startWorker, until, type WorkerProcess } from "./processes.ts";
import { createProgress } from "./progress.ts";
import { summaryTable } from "./table.ts";
import { runsByEvent, verify } from "./verify.ts";

const usage = `bun run demo [--repo DIR] [--limit N] [--server-kill] [--keep]

  --repo DIR     commits of this git repository (default: svc's own)
  --limit N      at most N of the newest commits (default 400)
  --server-kill  also kill -9 the demo's server on the way, and start it again
  --keep         leave the server running at the end

Uses the server at SVC_SERVER_URL (with SVC_API_KEY) when that is set, else starts one in a temporary folder.`;

const limitDefault = 400;
/** A killed worker's runs come back after this. */
const ownLeaseMs = 3_000;
const ownRunMsMax = 100_000;
const foreignRunMsMax = 300_000;
const complaintsShown = 10;

const { values: flags } = parseArgs({
  options: {
    repo: { type: "string" },
    limit: { type: "string" },
    keep: { type: "boolean", default: false },
    "server-kill": { type: "boolean", default: false },
    help: { type: "boolean", default: false },
  },
});

const progress = createProgress();
const folder = mkdtempSync(join(tmpdir(), "svc-demo-"));
const files = {
  journal: join(folder, "journal.jsonl"),
  results: join(folder, "results.jsonl"),
  log: join(folder, "worker.log"),
};
let server: Server | undefined;
let worker: WorkerProcess | undefined;

async function openServer(): Promise<Server> {
  const url = process.env.SVC_SERVER_URL;
  if (!url) return startServer(folder, { SVC_LEASE_MS: String(ownLeaseMs) });
  if (flags["server-kill"])
    throw new Error("--server-kill needs the demo's own server: unset SVC_SERVER_URL");
  return { url, apiKey: process.env.SVC_API_KEY };
}

/** A server that is killed and started again is away for a moment: asked until it answers. */
const patiently = <T>(about: string, ask: () => Promise<T>): Promise<T> =>
  until(
    about,
    () =>
      ask().catch((error: unknown) => {
        if (error instanceof SvcError && error.retryable) return undefined;
        throw error;
      }),
    { msMax: 30_000, everyMs: 200 },
  ) as Promise<T>;

/** Emits every commit once, however often it has to ask: the hash is the idempotency key. Answers event ids by hash. */
async function feed(client: Client, commits: readonly Commit[]): Promise<Map<string, string>> {
  const events = commits.map((commit) => ({ event: eventName, data: commit, idempotencyKey: commit.hash }));
  const emitted = await patiently("the server to take the commits", () => client.emitMany(events));
  return new Map(commits.map((commit, at) => [commit.hash, emitted[at]!.eventId]));
}

/** Runs that have recorded their commit, as the workers' journal knows it: no question to the server. */
const recordedCount = () =>
  new Set(
    readLines<JournalEntry>(files.journal)
      .filter((entry) => entry.what === "stored" && entry.step === "record")
      .map((entry) => entry.runId),
  ).size;

async function demo(): Promise<boolean> {
  const startedAt = Date.now();
  const limit = Math.max(1, Number(flags.limit ?? limitDefault) || limitDefault);
  const repo = flags.repo ?? join(import.meta.dirname, "../..");
  const { commits, source } = historyOf(repo, limit, flags.repo !== undefined);
  if (commits.length === 0) throw new Error(`there are no commits in ${repo}`);
  const total = commits.length;

  server = await openServer();
  const client = createClient({
    url: server.url,
    ...(server.apiKey !== undefined && { apiKey: server.apiKey }),
  });
  progress.say(
    `server    ${server.url}${server.own ? ` (started for this, data in ${folder})` : " (SVC_SERVER_URL)"}`,
  );
  progress.say(`commits   ${total}${total < limit ? " (all there are)" : ""}, ${source}`);

  worker = await startWorker(server, files);
  progress.say(`worker    process ${worker.pid}; three durable steps a commit: parse, classify, record`);
  const events = await feed(client, commits);

  const msMax = server.own ? ownRunMsMax : foreignRunMsMax;
  const reach = (share: number) =>
    until(
      `${Math.round(share * 100)} % of the commits`,
      async () => {
        const done = recordedCount();
        progress.show(done, total);
        return done >= total * share ? true : undefined;
      },
      { msMax },
    );

  // With a server that knows these commits from an earlier demo there is nothing left to do, and nothing to kill.
  const wanted = new Set(events.values());
  const completed = async () => {
    const found = await patiently("the list of runs", () => runsByEvent(client, wanted));
    const lists = [...found.values()];
    return lists.filter((list) => list.some((run) => run.status === "completed" || run.status === "failed"))
      .length;
  };
  const known = (await completed()) - recordedCount() > total / 4;
  if (known)
    progress.say("          these commits are known here from an earlier demo; each was handled once");
  else {
    if (flags["server-kill"] && server.own) {
      await reach(0.25);
      await server.own.kill();
      progress.say(`kill -9   the server, at ${recordedCount()} of ${total}`);
      await server.own.start();
      progress.say("          it is back, on the same data");
    }
    await reach(0.5);
    await worker.kill("SIGKILL");
    progress.say(`kill -9   worker ${worker.pid}, at ${recordedCount()} of ${total}`);
    worker = await startWorker(server, files);
    progress.say(
      `worker    process ${worker.pid} takes over; what the other held comes back when its lease ends`,
    );
  }
  await until(
    "all commits to be handled",
    async () => {
      // The server decides: a worker killed between a step's acknowledgement and its own note of it never wrote that down.
      const done = await completed();
      progress.show(done, total);
      return done >= total ? true : undefined;
    },
    { msMax, everyMs: 250 },
  ).catch((error: Error) => progress.say(`          ${error.message}`));
  await worker.kill("SIGTERM");
  worker = undefined;

  const journal = summarize(readLines<JournalEntry>(files.journal));
  const results = readLines<CommitResult>(files.results);
  const { handled, complaints } = await patiently("the last look", () =>
    verify(client, { events, journal, results }),
  );
  progress.say(`\n${summaryTable(handled, journal)}\n`);
  const seconds = ((Date.now() - startedAt) / 1_000).toFixed(1);
  for (const complaint of complaints.slice(0, complaintsShown)) progress.say(`WRONG     ${complaint}`);
  if (complaints.length > complaintsShown)
    progress.say(`          and ${complaints.length - complaintsShown} more`);
  if (complaints.length === 0) {
    progress.say(
      `It adds up: ${total} commits, ${total} completed runs, ${total * 3} completed steps in ${seconds} s. ` +
        `${journal.repeatedInFlight} steps were under way at a kill and ran again; no acknowledged step did.`,
    );
  }
  return complaints.length === 0;
}

async function leave(): Promise<void> {
  await worker?.kill("SIGKILL");
  if (flags.keep && server?.own) {
    server.own.leave();
    progress.say(
      `\nThe server runs on: ${server.url}, key in ${server.own.keyFile}. End it: kill ${server.own.pid()}`,
    );
    return;
  }
  await server?.own?.stop();
  rmSync(folder, { recursive: true, force: true });
}

async function main(): Promise<number> {
  if (flags.help) {
    console.log(usage);
    return 0;
  }
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    process.once(signal, () => void leave().finally(() => process.exit(130)));
  }
  try {
    return (await demo()) ? 0 : 1;
  } catch (error) {
    progress.say(`The demo could not go on: ${error instanceof Error ? error.message : error}`);
    return 1;
  } finally {
    await leave();
  }
}

process.exit(await main());
