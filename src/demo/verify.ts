import type { Client, Run, Step } from "../sdk/index.ts";
import { type CommitResult, functionId, stepNames } from "./handle-commit.ts";
import type { JournalSummary } from "./journal.ts";

interface HandledCommit {
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

/** The value below which `share` (0 to 1) of the values lie; 0 of none. */
export function percentile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
}

const inMs = ({ run }: HandledCommit) => Date.parse(run.endedAt ?? run.updatedAt) - Date.parse(run.createdAt);

function row(name: string, list: readonly HandledCommit[], journal: JournalSummary): string[] {
  const worked = list.map(({ run }) => journal.runs.get(run.id));
  const sum = (values: number[]) => values.reduce((total, value) => total + value, 0);
  const times = list.map(inMs);
  return [
    name,
    String(list.length),
    String(sum(list.map(({ steps }) => steps.length))),
    String(sum(worked.map((run) => run?.entries ?? 0))),
    String(worked.filter((run) => (run?.pids.size ?? 0) > 1).length),
    `${Math.round(percentile(times, 0.5))} ms`,
    `${Math.round(percentile(times, 0.95))} ms`,
  ];
}

/** What ran, by kind of commit. Times are from a run's creation to its end, waiting included. */
export function summaryTable(handled: readonly HandledCommit[], journal: JournalSummary): string {
  const kindOf = ({ run }: HandledCommit) => (run.output as CommitResult | null)?.kind ?? "?";
  const kinds = [...new Set(handled.map(kindOf))].sort();
  const rows = [
    ["kind", "runs", "steps", "attempts", "recovered", "p50", "p95"],
    ...kinds.map((kind) =>
      row(
        kind,
        handled.filter((one) => kindOf(one) === kind),
        journal,
      ),
    ),
    row("all", handled, journal),
  ];
  const widths = rows[0]!.map((_, column) => Math.max(...rows.map((cells) => cells[column]!.length)));
  const line = (cells: string[]) =>
    cells.map((cell, at) => (at === 0 ? cell.padEnd(widths[at]!) : cell.padStart(widths[at]!))).join("  ");
  const rule = widths.map((width) => "-".repeat(width)).join("  ");
  return [line(rows[0]!), rule, ...rows.slice(1, -1).map(line), rule, line(rows.at(-1)!)].join("\n");
}
