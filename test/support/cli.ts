import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Io } from "../../src/cli/io.ts";
import { type Installed, runCli } from "../../src/cli/run.ts";
import { type Clock, systemClock } from "../../src/kit/clock.ts";

export interface Ended {
  code: number | undefined;
  out: string;
  err: string;
  /** What was said of progress, on a line that is replaced. */
  status?: string[];
}

export interface CliOptions {
  environment?: Record<string, string>;
  /** Standard input, which is no terminal then. */
  input?: string | Uint8Array;
  /** What a person types at the questions, one after the other; input and output are terminals then. */
  types?: readonly string[];
  /** ^C before the command has done anything. */
  isInterrupted?: boolean;
  /** ^C at the first word of how far it is. */
  isInterruptedMidway?: boolean;
  /** Instead of the machine's own. */
  clock?: Clock;
  /** Called with each line for people. */
  onNote?: (text: string) => void;
  /** Called with all that was written so far, each time something is. */
  onOut?: (text: string, stop: () => void) => void;
}

export interface Cli {
  /** Its home and its folder. */
  folder: string;
  run(words: readonly string[], options?: CliOptions): Promise<Ended>;
  remove(): void;
}

/** The command line in this process, with a home of its own. */
export function makeCli(environment: Record<string, string> = {}, installed: Installed = {}): Cli {
  const folder = mkdtempSync(join(tmpdir(), "svc-cli-"));
  return {
    folder,
    async run(
      words,
      { environment: more = {}, input, types, isInterrupted, isInterruptedMidway, onOut, onNote, clock } = {},
    ) {
      const said = { out: "", err: "", status: [] as string[] };
      const over = new AbortController();
      if (isInterrupted) over.abort();
      const lines = [...(types ?? [])];
      const decoder = new TextDecoder();
      const io: Io = {
        environment: { ...environment, ...more },
        ...{ folder, home: folder, columns: 100, isTerminal: types !== undefined },
        out(text) {
          said.out += typeof text === "string" ? text : decoder.decode(text, { stream: true });
          onOut?.(said.out, () => over.abort());
        },
        note: (text) => {
          said.err += `svc: ${text}\n`;
          onNote?.(text);
        },
        status: (text) => {
          if (text !== "") said.status.push(text);
          if (isInterruptedMidway) over.abort();
        },
        input: {
          isTerminal: types !== undefined,
          bytes: async () =>
            typeof input === "string" ? new TextEncoder().encode(input) : (input ?? new Uint8Array()),
          ask: async (question) => {
            said.err += question;
            return lines.shift();
          },
        },
        signal: over.signal,
        clock: clock ?? systemClock(),
      };
      const code = await runCli(words, io, installed);
      const { out, err, status } = said;
      return { code, out, err, ...(status.length > 0 && { status }) };
    },
    remove: () => rmSync(folder, { recursive: true, force: true }),
  };
}
