import { appendFileSync, existsSync, readFileSync } from "node:fs";

/**
 * What a worker did, one JSON line each, written before it continues: a SIGKILL loses nothing of it. `enter`:
 * the handler began; `start`: a step's work begins; `stored`: the server has acknowledged the step.
 */
export interface JournalEntry {
  what: "enter" | "start" | "stored";
  runId: string;
  /** Empty for `enter`. */
  step: string;
  pid: number;
}

export function journalTo(path: string): (what: JournalEntry["what"], runId: string, step?: string) => void {
  return (what, runId, step = "") => {
    const entry: JournalEntry = { what, runId, step, pid: process.pid };
    appendFileSync(path, `${JSON.stringify(entry)}\n`);
  };
}

/** Every whole line of a file of JSON lines; none when there is no such file. */
export function readLines<Line>(path: string): Line[] {
  if (!existsSync(path)) return [];
  const lines = readFileSync(path, "utf8").split("\n");
  // What follows the last line break was cut short by a kill.
  lines.pop();
  return lines.map((line) => JSON.parse(line) as Line);
}

export interface JournalSummary {
  /** Steps that began again after the server had acknowledged them. Must be empty. */
  repeatedAfterStored: string[];
  /** Steps that were under way when their worker died, and ran again. */
  repeatedInFlight: number;
  /** Entries of the handler and processes that worked on it, by run. */
  runs: Map<string, { entries: number; pids: Set<number> }>;
}

export function summarize(entries: readonly JournalEntry[]): JournalSummary {
  const stored = new Set<string>();
  const begun = new Set<string>();
  const summary: JournalSummary = { repeatedAfterStored: [], repeatedInFlight: 0, runs: new Map() };
  for (const { what, runId, step, pid } of entries) {
    const key = `${runId} ${step}`;
    const run = summary.runs.get(runId) ?? { entries: 0, pids: new Set() };
    summary.runs.set(runId, run);
    run.pids.add(pid);
    if (what === "enter") run.entries++;
    else if (what === "stored") stored.add(key);
    else if (stored.has(key)) summary.repeatedAfterStored.push(key);
    else if (begun.has(key)) summary.repeatedInFlight++;
    if (what === "start") begun.add(key);
  }
  return summary;
}
