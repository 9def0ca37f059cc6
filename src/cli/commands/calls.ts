import type { Command } from "commander";
import { csv, sheet } from "../../kit/csv.ts";
import { durationMs } from "../../sdk/wire/duration.ts";
import { type EmittedShown, type Input, startedNothing } from "../call.ts";
import { type Asking, addPlain, ask, askAndShow, askingOf, type PlainCommand, sayRead } from "../command.ts";
import type { LoneCommand } from "../group.ts";
import { refused, usage } from "../io.ts";
import { callMarginMs, waitMsDefault } from "../limits.ts";
import { flagOf, operationNamed, operations } from "../operations.ts";
import { shown } from "../show.ts";
import { stepColumns } from "./runs.ts";

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

const usageCommand: PlainCommand = {
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

/** Milliseconds of `30s`, `500ms`, or a bare number of milliseconds. */
function msOf(text: unknown, flag: string, fallback: number): number {
  if (text === undefined) return fallback;
  const bare = /^\d{1,9}$/.test(String(text)) ? Number(text) : String(text);
  try {
    return durationMs(bare);
  } catch {
    throw usage(`${flag}: must be a time such as 30s or 500ms, not ${text}`);
  }
}

interface RunOutcomeShown {
  runId?: string;
  functionId?: string;
  status?: string;
  error?: { message?: string };
}

/** What a start that is waited for does not take, as a delay, must not be passed over. */
function requireKnown(input: Input, operation: string): void {
  const { fields } = operationNamed(operation);
  const other = Object.keys(input).find((name) => !fields.some((field) => field.name === name));
  if (other !== undefined) throw usage(`--${flagOf(other)} and --wait: choose one`);
}

/** A call that waits for runs needs more time than they have. */
const patient = ({ io, flags }: Asking, timeoutMs: number): Asking =>
  askingOf(io, flags, timeoutMs + callMarginMs);

/** A run that ended otherwise than it should makes the command fail, so that scripts notice. */
function requireCompleted(outcomes: readonly RunOutcomeShown[]): void {
  const bad = outcomes.find(({ status }) => status !== undefined && status !== "RUN_STATUS_COMPLETED");
  if (!bad) return;
  const word = bad.status!.replace("RUN_STATUS_", "").toLowerCase();
  throw refused(
    `run ${bad.runId} is ${word}${bad.error?.message ? `: ${bad.error.message}` : ""}: svc why ${bad.runId}`,
  );
}

/** What a person would wonder about is said: that nothing began, or what an option of a function did. */
async function emitAlone(asking: Asking, input: Input): Promise<void> {
  const answer = await ask<EmittedShown>(asking, "events.emit", input);
  const { io, form } = asking;
  await io.out(shown(answer, form, { io, items: "" }));
  for (const { message = "" } of answer.notices ?? []) io.note(message);
  const why = startedNothing(answer, input.event, "svc function list");
  if (why !== undefined) io.note(why);
}

const emit: PlainCommand = {
  name: "emit",
  operation: "events.emit",
  takes: ["event"],
  flagsToo: [
    ["--wait", "Wait for the runs that it starts, and show what they answer."],
    ["--timeout <time>", "How long --wait waits, as 30s."],
  ],
  async does(asking, input, { wait, timeout }) {
    if (!wait) return emitAlone(asking, input);
    const timeoutMs = msOf(timeout, "--timeout", waitMsDefault);
    requireKnown(input, "events.emitSync");
    const asked = { ...input, timeoutMs };
    const answer = await ask<{ results?: RunOutcomeShown[] }>(
      patient(asking, timeoutMs),
      "events.emitSync",
      asked,
    );
    const shows = { columns: ["runId", "functionId", "status", "durationMs", "output"], items: "results" };
    await asking.io.out(shown(answer, asking.form, { io: asking.io, ...shows }));
    requireCompleted(answer.results ?? []);
  },
};

const invoke: PlainCommand = {
  name: "invoke",
  operation: "functions.invoke",
  takes: ["functionId"],
  flagsToo: [
    ["--no-wait", "Do not wait for the run."],
    ["--timeout <time>", "How long to wait, as 30s."],
  ],
  about: "Runs a function and waits for what it answers; ^C cancels the run.",
  async does(asking, input, { wait, timeout }) {
    if (wait === false) return askAndShow(asking, operationNamed("functions.invoke"), input, { items: "" });
    const timeoutMs = msOf(timeout, "--timeout", waitMsDefault);
    const asked = { ...input, timeoutMs };
    const answer = await ask<{ result?: RunOutcomeShown }>(
      patient(asking, timeoutMs),
      "functions.invokeSync",
      asked,
    );
    const value = asking.form === "people" ? answer.result : answer;
    await asking.io.out(shown(value, asking.form, { io: asking.io, items: "" }));
    requireCompleted(answer.result ? [answer.result] : []);
  },
};

interface Queried {
  columns?: string[];
  rows?: { values?: string[]; nulls?: number[] }[];
  truncated?: boolean;
}

const sqlForms = ["table", "json", "csv", "jsonl"] as const;

/** Rows by the names of their columns; null where the server says so. */
function rowsOf({ columns = [], rows = [] }: Queried): Record<string, string | null>[] {
  return rows.map(({ values = [], nulls = [] }) =>
    Object.fromEntries(columns.map((column, at) => [column, nulls.includes(at) ? null : (values[at] ?? "")])),
  );
}

const csvOf = ({ columns = [], rows = [] }: Queried): string =>
  csv([columns, ...rows.map(({ values = [] }) => values)]);

const sql: PlainCommand = {
  name: "sql",
  operation: "query.execute",
  takes: ["query"],
  sets: { timeoutMs: undefined },
  flagsToo: [
    ["--format <word>", `One of ${sqlForms.join(", ")}.`],
    ["--timeout <time>", "How long it may take, as 500ms [5s]."],
  ],
  async does(asking, given, { format, timeout }) {
    const { io, form } = asking;
    const input = { ...given, ...(timeout !== undefined && { timeoutMs: msOf(timeout, "--timeout", 0) }) };
    if (format !== undefined && !sqlForms.some((one) => one === format))
      throw usage(`--format: must be one of ${sqlForms.join(", ")}, not ${format}`);
    let isCut = false;
    await sayRead(asking, async () => {
      const answer = await ask<Queried>(asking, "query.execute", input);
      if (form === "json") return shown(answer, "json", { io });
      isCut = answer.truncated === true;
      const rows = rowsOf(answer);
      if (format === "csv") return csvOf(answer);
      if (format === "json") return shown(rows, "json", { io });
      return shown(rows, format === "jsonl" ? "jsonl" : form, { io, columns: answer.columns });
    });
    if (isCut) io.note("rows were left out: --max-rows, or a narrower query");
  },
};

const inspect: PlainCommand = {
  name: "inspect",
  operation: "timetravel.state",
  takes: ["runId"],
  flags: { timestamp: "at" },
  about: "What happened to a run; with --at, how it stood then.",
  async does(asking, input) {
    if (input.timestamp !== undefined)
      return askAndShow(asking, operationNamed("timetravel.state"), input, { items: "" });
    const columns = ["timestamp", "eventType", "stepName", "summary"];
    const { io, form, flags } = asking;
    if (flags.watch)
      return askAndShow(asking, operationNamed("timetravel.timeline"), input, { columns, items: "events" });
    const answer = await ask<{ events?: unknown[] }>(asking, "timetravel.timeline", input);
    if (form !== "people" || answer.events?.length)
      return void (await io.out(shown(answer, form, { io, columns, items: "events" })));
    io.note("nothing was recorded, because its function has no recording: its steps are");
    await askAndShow(asking, operationNamed("runs.steps"), { runId: input.runId }, { columns: stepColumns });
  },
};

const destroying = /\.(delete|discard|clear|deleteMany|redact|redactEvent|cancelSubtree|unregister)$/;

const calling = (operation: string): PlainCommand => ({
  ...{ name: operation, operation },
  ...(destroying.test(operation) && { confirms: `Call ${operation}? It cannot be taken back.` }),
});

/** `svc call NAME`: every operation of the server, with the fields of its schema as flags. */
function addCall(program: Command, io: Parameters<LoneCommand["add"]>[1], words: readonly string[]): void {
  const call = program
    .command("call")
    .summary("Any operation of the server by its name.")
    .description("Any operation of the server by its name; svc call NAME --help shows its fields.");
  for (const operation of operations)
    if (words.includes(operation.name)) addPlain(call, calling(operation.name), io);
    else call.command(operation.name).summary(operation.about);
}

const plainOnes: readonly PlainCommand[] = [emit, invoke, sql, inspect, usageCommand];

export const callCommands = (words: readonly string[]): readonly LoneCommand[] => [
  ...plainOnes.map(
    (plain): LoneCommand => ({
      name: plain.name,
      about: plain.about ?? operationNamed(plain.operation).about,
      add: (program, io) => void addPlain(program, plain, io),
    }),
  ),
  {
    name: "call",
    about: "Any operation of the server by its name.",
    add: (program, io) => addCall(program, io, words),
  },
];
