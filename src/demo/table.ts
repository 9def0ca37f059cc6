import type { CommitResult } from "./handle-commit.ts";
import type { JournalSummary } from "./journal.ts";
import type { HandledCommit } from "./verify.ts";

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
