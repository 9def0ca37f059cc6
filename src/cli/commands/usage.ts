import { sheet } from "../../kit/csv.ts";
import { ask, type PlainCommand, sayRead } from "../command.ts";
import { usage } from "../io.ts";
import { shown } from "../show.ts";

type UsageCells = Record<string, string | number | boolean | undefined>;

interface UsageShown {
  rows?: UsageCells[];
  total?: UsageCells;
}

const counted = ["runs_started", "runs_completed", "runs_failed", "runs_cancelled", "steps", "worker_ms"];
const ofDays = ["events", "event_bytes"];
const formats = ["table", "csv"];

/** What is of no function has no name in the answer. */
const nameOf = ({ day, function_id: id, other }: UsageCells) =>
  day ?? id ?? (other ? "(other functions)" : "");

export const usageCommand: PlainCommand = {
  name: "usage",
  operation: "usage.list",
  flags: { function_id: "function", group_by: "by" },
  async does(asking, { format = "table", ...input }) {
    const { io, form } = asking;
    if (!formats.includes(`${format}`))
      throw usage(`--format: must be one of ${formats.join(", ")}, not ${format}`);
    const isByFunction = input.group_by === "function";
    const columns = [...counted, ...(isByFunction ? [] : ofDays)];
    const first = isByFunction ? "function_id" : "day";
    await sayRead(asking, async () => {
      const answer = await ask<UsageShown>(asking, "usage.list", input);
      const { rows = [], total = {} } = answer;
      if (form !== "people") return shown(answer, form, { io, items: "rows" });
      if (format === "csv") {
        const cells = rows.map((row) => [row[first], ...columns.map((name) => row[name])]);
        return sheet([[first, ...columns], ...cells.map((row) => row.map((one) => `${one ?? ""}`))]);
      }
      const named = [...rows, { ...total, day: "total" }].map((row) => ({ ...row, [first]: nameOf(row) }));
      return shown(rows.length === 0 ? [] : named, form, { io, columns: [first, ...columns] });
    });
  },
};
