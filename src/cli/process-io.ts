import { homedir } from "node:os";
import { createInterface } from "node:readline/promises";
import { systemClock } from "../kit/clock.ts";
import { exitCodes, type Io } from "./io.ts";

/** What a person types without seeing it. */
async function hiddenLine(question: string): Promise<string | undefined> {
  const { stdin, stderr } = process;
  stderr.write(question);
  stdin.setRawMode(true);
  let line = "";
  try {
    for await (const piece of stdin) {
      for (const letter of String(piece)) {
        if (letter === "\r" || letter === "\n") return line;
        if (letter === "\u0003" || letter === "\u0004") return undefined;
        line = letter === "\u007f" ? line.slice(0, -1) : line + letter;
      }
    }
    return undefined;
  } finally {
    stdin.setRawMode(false);
    stdin.pause();
    stderr.write("\n");
  }
}

async function visibleLine(question: string, signal: AbortSignal): Promise<string | undefined> {
  const lines = createInterface({ input: process.stdin, output: process.stderr });
  try {
    return await lines.question(question, { signal });
  } catch {
    return undefined;
  } finally {
    lines.close();
  }
}

const columnsDefault = 80;

/** This process as commands see it. */
export function processIo(): Io {
  const over = new AbortController();
  let isHeard = false;
  /** Until a command asks for the signal, ^C ends the process as it ends any other. */
  const hear = () => {
    if (isHeard) return;
    isHeard = true;
    for (const signal of ["SIGINT", "SIGTERM"] as const)
      process.on(signal, () => {
        // A second ^C does not wait for what the first one ends.
        if (over.signal.aborted) process.exit(exitCodes.interrupted);
        over.abort();
      });
  };
  // The reader closed its end: `svc run list | head`.
  process.stdout.on("error", () => process.exit(0));
  let shown = "";
  const io: Io = {
    environment: process.env,
    folder: process.cwd(),
    home: homedir(),
    out: (text) =>
      process.stdout.write(text) ? undefined : new Promise((done) => process.stdout.once("drain", done)),
    note(text) {
      io.status("");
      process.stderr.write(`svc: ${text}\n`);
    },
    status(text) {
      if (!process.stderr.isTTY || text === shown) return;
      shown = text;
      process.stderr.write(`\r\u001b[K${text}`);
    },
    isTerminal: process.stdout.isTTY === true,
    columns: process.stdout.columns || columnsDefault,
    input: {
      isTerminal: process.stdin.isTTY === true,
      bytes: () => Bun.stdin.bytes(),
      ask: (question, { hidden = false } = {}) =>
        hidden ? hiddenLine(question) : visibleLine(question, over.signal),
    },
    get signal() {
      hear();
      return over.signal;
    },
    clock: systemClock(),
  };
  return io;
}
