import type { Client, Run, Step } from "../sdk/index.ts";
import { type CommitResult, functionId, stepNames } from "./handle-commit.ts";
import type { JournalSummary } from "./journal.ts";

export interface HandledCommit {
  hash: string;
  run: Run;
  steps: Step[];
}

export interface Verification {
  handled: HandledCommit[];
  /** One sentence for everything that is not as promised; empty when all is well. */
  complaints: string[];
}

const pageMax = 200;
const askersMax = 16;

/** Every run of the demo's function, by the event that started it, asked from the server. */
export async function runsByEvent(client: Client, wanted: ReadonlySet<string>): Promise<Map<string, Run[]>> {
  const found = new Map<string, Run[]>();
  let cursor: string | undefined;
  do {
    const page = await client.listRuns({
      functionId,
      limit: pageMax,
      ...(cursor !== undefined && { cursor }),
    });
    for (const run of page.runs) {
      if (wanted.has(run.eventId)) found.set(run.eventId, [...(found.get(run.eventId) ?? []), run]);
    }
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  return found;
}

/** Asks the server what became of every commit, and holds the journal against it. */
export async function verify(
  client: Client,
  {
    events,
    journal,
    results,
  }: {
    /** Event id by commit hash. */
    events: ReadonlyMap<string, string>;
    journal: JournalSummary;
    results: readonly CommitResult[];
  },
): Promise<Verification> {
  const complaints: string[] = [];
  const handled: HandledCommit[] = [];
  const runs = await runsByEvent(client, new Set(events.values()));

  const unasked = [...events];
  const asker = async () => {
    for (let next = unasked.pop(); next !== undefined; next = unasked.pop()) {
      const [hash, eventId] = next;
      const [run, ...others] = runs.get(eventId) ?? [];
      if (run === undefined) {
        complaints.push(`commit ${hash} has no run`);
        continue;
      }
      if (others.length > 0) complaints.push(`commit ${hash} has ${others.length + 1} runs`);
      if (run.status !== "completed") complaints.push(`run ${run.id} of commit ${hash} is ${run.status}`);
      const steps = await client.getRunSteps(run.id);
      const names = steps.filter((step) => step.status === "completed").map((step) => step.name);
      if (names.join() !== stepNames.join()) {
        complaints.push(`run ${run.id} has completed steps ${names.join(", ") || "none"}`);
      }
      handled.push({ hash, run, steps });
    }
  };
  await Promise.all(Array.from({ length: askersMax }, asker));

  for (const step of journal.repeatedAfterStored)
    complaints.push(`acknowledged step was started again: ${step}`);
  // A kill between the line and its acknowledgement writes it twice: for a file, 'at least once' means that.
  const recorded = new Set(results.map((result) => result.hash));
  for (const { hash } of handled) {
    if (journal.runs.size > 0 && !recorded.has(hash)) complaints.push(`commit ${hash} is not in the results`);
  }
  return { handled, complaints };
}
