import { existsSync } from "node:fs";
import { resolve } from "node:path";
import type { Command } from "commander";
import { durationMs } from "../sdk/wire/duration.ts";
import { type Message, readRun, readStep } from "../sdk/wire/read.ts";
import type { PlayedRun, RecordedRun } from "../sdk/worker/rehearsal.ts";
import { type Asking, addCommon, ask, askingOf, type CommonFlags } from "./command.ts";
import { type Io, refused, usage } from "./io.ts";
import { rehearsedDefault, rehearsedMax, rehearsedStartMs } from "./limits.ts";
import { cellOf, paintOf } from "./show.ts";

/** How a run goes with the new code. */
interface Rehearsed {
  runId: string;
  functionId: string;
  status: string;
  /** Empty for one that goes the same way. */
  differences: string[];
  /** Why it was not played. */
  skipped?: string;
}

interface RehearseFlags extends CommonFlags {
  worker: string;
  function?: string;
  last: string;
  timeout: string;
}

/** The program of a worker as a process of its own: code that never returns can be killed. */
class RehearsedProgram {
  readonly #child: Bun.Subprocess;
  readonly #io: Io;
  #heard: (message: unknown) => void = () => {};
  #tail = "";

  constructor(file: string, io: Io) {
    this.#io = io;
    this.#child = Bun.spawn([process.execPath, "run", file], {
      cwd: io.folder,
      // No server is at that port, and no key is there: what the SDK's own answer does not stop goes nowhere.
      env: {
        ...io.environment,
        ...{ SVC_REHEARSAL: "1", SVC_SERVER_URL: "http://127.0.0.1:1", SVC_API_KEY: undefined },
        ...{ SVC_NO_DISCOVERY: "1", BUN_BE_BUN: "1" },
      },
      ...{ stdin: "ignore", stdout: "ignore", stderr: "pipe", serialization: "json" },
      ipc: (message) => this.#heard(message),
    });
    void this.#keepTail();
  }

  async #keepTail(): Promise<void> {
    const decoder = new TextDecoder();
    for await (const piece of this.#child.stderr as ReadableStream<Uint8Array>)
      this.#tail = `${this.#tail}${decoder.decode(piece)}`.slice(-2_000);
  }

  /** The next message. Undefined when none came in time; throws when the program ended instead. */
  async hear<Heard>(withinMs: number): Promise<Heard | undefined> {
    const { promise, resolve: answer, reject } = Promise.withResolvers<Heard | undefined>();
    this.#heard = (message) => answer(message as Heard);
    const cancel = this.#io.clock.after(withinMs, () => answer(undefined));
    const stop = () => answer(undefined);
    this.#io.signal.addEventListener("abort", stop, { once: true });
    void this.#child.exited.then(async (code) => {
      await this.#io.clock.sleep(10);
      reject(
        refused(`the worker's program ended with ${code}: ${lastLine(this.#tail) || "it said nothing"}`),
      );
    });
    try {
      return await promise;
    } finally {
      cancel();
      this.#io.signal.removeEventListener("abort", stop);
    }
  }

  play(recorded: RecordedRun): void {
    this.#child.send(recorded);
  }

  async stop(): Promise<void> {
    this.#child.kill("SIGKILL");
    await this.#child.exited;
  }
}

const lastLine = (text: string): string => text.trim().split("\n").at(-1)?.trim() ?? "";

/** The newest runs of these functions that are over or wait, and have a step. */
async function recordedRuns(
  asking: Asking,
  functionIds: readonly string[],
  last: number,
): Promise<RecordedRun[]> {
  const listed: Message[] = [];
  const statuses = ["COMPLETED", "FAILED", "PAUSED"].map((status) => `RUN_STATUS_${status}`);
  for (const functionId of functionIds) {
    const asked = { functionId, statuses, limit: last, maxValueBytes: 1 };
    listed.push(...((await ask<{ runs?: Message[] }>(asking, "runs.list", asked)).runs ?? []));
  }
  const newest = listed.sort((a, b) => (String(a.createdAt) < String(b.createdAt) ? 1 : -1)).slice(0, last);
  const recorded: RecordedRun[] = [];
  for (const { id } of newest) {
    const run = readRun(await ask<Message>(asking, "runs.get", { id }));
    if (run.redactedAt !== undefined) continue;
    const answer = await ask<{ steps?: Message[] }>(asking, "runs.steps", { runId: run.id });
    const steps = (answer.steps ?? []).map(readStep);
    if (steps.length > 0) recorded.push({ run, steps });
  }
  return recorded;
}

/** Where two values first differ, as a path; undefined where they are the same. */
export function differenceOf(one: unknown, other: unknown, path = "output"): string | undefined {
  if (typeof one !== "object" || typeof other !== "object" || one === null || other === null)
    return Object.is(one, other) ? undefined : path;
  if (Array.isArray(one) !== Array.isArray(other)) return path;
  for (const name of new Set([...Object.keys(one), ...Object.keys(other)])) {
    const at = Array.isArray(one) ? `${path}[${name}]` : `${path}.${name}`;
    const found = differenceOf((one as never)[name], (other as never)[name], at);
    if (found !== undefined) return found;
  }
  return undefined;
}

const listOf = (names: readonly string[]): string => names.map(cellOf).join(", ");

/** What the new code did otherwise than the run; no values. */
export function differencesOf({ run, steps }: RecordedRun, played: PlayedRun): string[] {
  const { added, missing, reordered, waits, ended } = played;
  const found: string[] = [];
  if (added.length > 0) found.push(`new step ${listOf(added)}: not played on from there`);
  if (missing.length > 0) found.push(`does not come to step ${listOf(missing)}`);
  if (reordered.length > 0) found.push(`comes to step ${listOf(reordered)} in another order`);
  const open = steps.filter(({ status }) => status === "sleeping" || status === "waiting");
  const expected = open.map(({ name }) => name).sort();
  const isSameWait = run.status === "paused" && ended === "waits" && `${expected}` === `${[...waits].sort()}`;
  if (ended === "waits" && !isSameWait)
    found.push(
      `waits at ${listOf(waits)}${run.status === "paused" ? ` and not at ${listOf(expected)}` : ""}`,
    );
  if (ended === "failed" && run.status !== "failed") found.push(`fails: ${cellOf(played.message)}`);
  if (ended === "completed" && run.status !== "completed")
    found.push(run.status === "failed" ? "completes, and had failed" : "completes, and waited");
  const at =
    ended === "completed" && run.status === "completed"
      ? differenceOf(run.output ?? null, JSON.parse(played.outputText ?? "null"))
      : undefined;
  if (at !== undefined) found.push(`gives another ${cellOf(at)}`);
  return found;
}

async function rehearse(asking: Asking, flags: RehearseFlags): Promise<Rehearsed[]> {
  const { io } = asking;
  const file = resolve(io.folder, flags.worker);
  if (!existsSync(file)) throw usage(`--worker: ${file} not found`);
  const last = Number(flags.last);
  if (!Number.isInteger(last) || last < 1 || last > rehearsedMax)
    throw usage(`--last: must be a whole number from 1 to ${rehearsedMax}`);
  const limitMs = limitOf(flags.timeout);
  let program = new RehearsedProgram(file, io);
  const begun = async () => {
    const hello = await program.hear<{ functionIds: string[] }>(rehearsedStartMs);
    if (hello) return hello.functionIds;
    throw refused(`${flags.worker} made no worker of the svc SDK within ${rehearsedStartMs / 1000} s`);
  };
  try {
    const served = await begun();
    if (flags.function !== undefined && !served.includes(flags.function))
      throw usage(`--function: ${flags.worker} serves ${served.join(", ") || "none"}`);
    const wanted = flags.function === undefined ? served : [flags.function];
    const results: Rehearsed[] = [];
    for (const recorded of await recordedRuns(asking, wanted, last)) {
      const { id: runId, functionId, status } = recorded.run;
      const rehearsed = { runId, functionId, status };
      program.play(recorded);
      const played = await program.hear<PlayedRun>(limitMs);
      if (io.signal.aborted) break;
      if (played?.ended === "skipped")
        results.push({ ...rehearsed, differences: [], skipped: played.message ?? "" });
      else if (played) results.push({ ...rehearsed, differences: differencesOf(recorded, played) });
      else {
        results.push({ ...rehearsed, differences: [`does not return within ${limitMs} ms`] });
        await program.stop();
        program = new RehearsedProgram(file, io);
        await begun();
      }
    }
    return results;
  } finally {
    await program.stop();
  }
}

function limitOf(text: string): number {
  try {
    return durationMs(/^\d{1,7}$/.test(text) ? Number(text) : text);
  } catch {
    throw usage(`--timeout: must be a time such as 5s or 500ms, not ${text}`);
  }
}

/** `svc rehearse --worker FILE`: what would new code make of the runs that there are? */
export function addRehearse(program: Command, io: Io): void {
  const command = program
    .command("rehearse")
    .description(
      "Plays recorded runs through the code of a worker, with their recorded results: no step is executed, and no call is made by the SDK. Ends with 1 when a run goes another way.",
    )
    .requiredOption("--worker <file>", "The program that makes the worker.")
    .option("--function <id>", "Only runs of this function; of all that the worker serves when left out.")
    .option("--last <n>", "So many of the newest runs that are over or wait.", String(rehearsedDefault))
    .option("--timeout <time>", "How long the code of one run may take.", "5s");
  addCommon(command).action(async () => {
    const flags = command.optsWithGlobals() as RehearseFlags;
    const asking = askingOf(io, flags);
    const runs = await rehearse(asking, flags);
    const differing = runs.filter(({ differences }) => differences.length > 0).length;
    if (asking.form === "json") await io.out(`${JSON.stringify({ runs, differing }, null, 2)}\n`);
    else if (asking.form === "jsonl") await io.out(runs.map((run) => `${JSON.stringify(run)}\n`).join(""));
    else await io.out(forPeople(runs, io));
    if (differing > 0) throw refused(`${differing} of ${runs.length} runs go another way`);
  });
}

function forPeople(runs: readonly Rehearsed[], io: Io): string {
  const paint = paintOf(io);
  if (runs.length === 0) return "no run with steps was found\n";
  const word = ({ differences, skipped }: Rehearsed): string => {
    if (skipped !== undefined) return paint.dim(`not played: ${cellOf(skipped)}`);
    return differences.length === 0 ? paint.good("same") : paint.bad(differences.join("; "));
  };
  return runs.map((run) => `${paint.dim(run.runId)}  ${cellOf(run.functionId)}  ${word(run)}\n`).join("");
}
