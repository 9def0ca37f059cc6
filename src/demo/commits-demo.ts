import { join } from "node:path";
import { type Client, createClient } from "../sdk/index.ts";
import type { Commit } from "./classify.ts";
import bundled from "./commits.json" with { type: "json" };
import { readHistory } from "./git.ts";
import { type CommitResult, eventName } from "./handle-commit.ts";
import { type JournalEntry, readLines, summarize } from "./journal.ts";
import { until } from "./processes.ts";
import { patiently, type Stage } from "./stage.ts";
import { runsByEvent, summaryTable, verify } from "./verify.ts";

interface CommitHistory {
  commits: Commit[];
  /** Where they come from, for the reader. */
  source: string;
}

/** The commits of `folder`, else the record that comes with svc: unless asked for, the longer of the two. */
function historyOf(folder: string, limit: number, asked: boolean): CommitHistory {
  const kept = (bundled as Commit[]).slice(-limit);
  try {
    const commits = readHistory(folder, limit);
    if (asked || commits.length >= kept.length) return { commits, source: `git log of ${folder}` };
  } catch (error) {
    if (asked) throw error;
  }
  return { commits: kept, source: "svc's own history, from the record that comes with it" };
}

const limitDefault = 400;
const ownRunMsMax = 100_000;
const foreignRunMsMax = 300_000;
const complaintsShown = 10;

export interface CommitFlags {
  repo?: string | undefined;
  limit?: string | undefined;
  "server-kill": boolean;
}

/** Emits each commit once, even if called again: the hash is the idempotency key. Answers ids by hash. */
async function feed(client: Client, commits: readonly Commit[]): Promise<Map<string, string>> {
  const events = commits.map((commit) => ({ event: eventName, data: commit, idempotencyKey: commit.hash }));
  const emitted = await patiently("the server to take the commits", () => client.emitMany(events));
  return new Map(commits.map((commit, at) => [commit.hash, emitted[at]!.eventId]));
}

/** Runs that have recorded their commit, as the workers' journal knows it: no question to the server. */
const recordedIn = (journal: string) =>
  new Set(
    readLines<JournalEntry>(journal)
      .filter((entry) => entry.what === "stored" && entry.step === "record")
      .map((entry) => entry.runId),
  ).size;

export async function commitsDemo(stage: Stage, flags: CommitFlags): Promise<boolean> {
  const startedAt = Date.now();
  const { server, progress, folder } = stage;
  const files = { journal: join(folder, "journal.jsonl"), results: join(folder, "results.jsonl") };
  const limit = Math.max(1, Number(flags.limit ?? limitDefault) || limitDefault);
  const repo = flags.repo ?? join(import.meta.dirname, "../..");
  const { commits, source } = historyOf(repo, limit, flags.repo !== undefined);
  const work = () => stage.startWorker("worker.ts", [files.journal, files.results]);
  if (commits.length === 0) throw new Error(`there are no commits in ${repo}`);
  const total = commits.length;

  const client = createClient({
    url: server.url,
    ...(server.apiKey !== undefined && { apiKey: server.apiKey }),
  });
  progress.say(`commits   ${total}${total < limit ? " (all there are)" : ""}, ${source}`);

  let worker = await work();
  progress.say(`worker    process ${worker.pid}; three durable steps a commit: parse, classify, record`);
  const events = await feed(client, commits);

  const recordedCount = () => recordedIn(files.journal);
  const msMax = server.own ? ownRunMsMax : foreignRunMsMax;
  const reach = (share: number) =>
    until(
      `${Math.round(share * 100)} % of the commits`,
      async () => {
        const done = recordedCount();
        progress.show(done, total, "commits handled");
        return done >= total * share ? true : undefined;
      },
      { msMax },
    );

  // A server that knows these commits from an earlier demo leaves nothing to do, and nothing to kill.
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
    worker = await work();
    progress.say(
      `worker    process ${worker.pid} takes over; what the other held comes back when its lease ends`,
    );
  }
  await until(
    "all commits to be handled",
    async () => {
      // The server decides: a worker killed right after a step was acknowledged has no note of that step.
      const done = await completed();
      progress.show(done, total, "commits handled");
      return done >= total ? true : undefined;
    },
    { msMax, everyMs: 250 },
  ).catch((error: Error) => progress.say(`          ${error.message}`));
  await worker.kill("SIGTERM");

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
