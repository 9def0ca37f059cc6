import type { Command } from "commander";
import { shownText } from "../kit/log-lines.ts";
import { type Asking, addCommon, ask, askingOf, type CommonFlags } from "./command.ts";
import type { Io } from "./io.ts";
import { localTime, paintOf } from "./show.ts";

interface LineShown {
  at: string;
  level?: string;
  text?: string;
  fields?: Record<string, unknown>;
  step?: string;
  attempt?: number;
  workerId?: string;
}

interface LogsShown {
  lines?: LineShown[];
  leftOut?: number;
  cursor?: string;
}

const followMs = 1_000;
const isOver = (status = ""): boolean => /COMPLETED|FAILED|CANCELLED/i.test(status);

function forPeople(io: Io, { at, level = "info", text = "", fields, step, attempt = 1 }: LineShown): string {
  const paint = paintOf(io);
  const given = fields ? ` ${paint.dim(shownText(JSON.stringify(fields)))}` : "";
  const from = step ? ` ${shownText(step)}:` : "";
  return `${paint.dim(`${localTime(at)} ${attempt}`)} ${level}${from} ${shownText(text)}${given}\n`;
}

async function show({ io, form }: Asking, logs: LogsShown): Promise<void> {
  const { lines = [] } = logs;
  const written = lines.map((line) =>
    form === "people" ? forPeople(io, line) : `${JSON.stringify(line)}\n`,
  );
  if (written.length > 0) await io.out(written.join(""));
}

/** Lines as they come, until the run is over. */
async function follow(asking: Asking, id: string): Promise<void> {
  const { io } = asking;
  let after = "";
  for (;;) {
    const { status } = await ask<{ status?: string }>(asking, "runs.get", { id });
    const logs = await ask<LogsShown>(asking, "runs.logs", { runId: id, ...(after !== "" && { after }) });
    await show(asking, logs);
    after = logs.cursor ?? after;
    if (isOver(status) || io.signal.aborted) return noteLeftOut(io, logs);
    await io.clock.sleep(followMs, io.signal);
  }
}

function noteLeftOut(io: Io, { leftOut = 0 }: LogsShown): void {
  if (leftOut > 0) io.note(`${leftOut} lines more were written than are kept of a run`);
}

/** `svc logs RUN`: what the handler wrote. */
export function addLogs(program: Command, io: Io): void {
  const command = program
    .command("logs <run-id>")
    .description("What the handler of a run wrote: time, attempt, level, step and text.")
    .option("--follow", "Go on until the run is over.");
  addCommon(command).action(async (id: string) => {
    const { follow: follows, ...flags } = command.optsWithGlobals() as CommonFlags & { follow?: boolean };
    const asking = askingOf(io, flags);
    if (follows) return follow(asking, id);
    const logs = await ask<LogsShown>(asking, "runs.logs", { runId: id });
    if (asking.form === "json") return io.out(`${JSON.stringify(logs, null, 2)}\n`);
    await show(asking, logs);
    noteLeftOut(io, logs);
  });
}
