import type { Clock } from "../kit/clock.ts";
import type { Fault } from "../kit/fault.ts";
import {
  type Cell,
  cutOff,
  databaseSays,
  type QueryAnswer,
  type QueryAsk,
  rowBytesMax,
  rowTooLarge,
  tookTooLong,
  tookTooMuch,
} from "./environment-databases.ts";
import type { ProgramAnswer, ProgramAsk, WirePlaces } from "./libsql-messages.ts";
import type { Seat } from "./seats.ts";
import { StoreError } from "./store.ts";

/** Of SQLite itself in one process; what it returns is in chunks. */
const heapBytes = 128 * 1024 * 1024;
/** How long a process may take to begin, also on a busy machine. */
const startMs = 20_000;

/** The built executable has no sources beside it: it starts itself (build/binary.ts). */
const program = Bun.isStandaloneExecutable
  ? "environment-program"
  : new URL("./libsql-program.ts", import.meta.url).pathname;

type Done = Extract<ProgramAnswer, { answer: "done" | "failed" }>;

type ProgramStart = ({ ask: "read" } & WirePlaces) | { ask: "write"; file: string };

/** A process of its own that works for one environment: it can be ended in the middle of a step of SQLite. */
export class LibsqlSeat implements Seat {
  readonly #clock: Clock;
  readonly #process: Bun.Subprocess;
  #isOver = false;
  #onAnswer: (answer: ProgramAnswer) => void = () => {};
  #onEnd: () => void = () => {};

  private constructor(clock: Clock) {
    this.#clock = clock;
    this.#process = Bun.spawn([process.execPath, program], {
      ipc: (message) => this.#onAnswer(message as ProgramAnswer),
      serialization: "json",
      // Nothing of the server's own: no settings, no secrets.
      env: {},
      stdio: ["ignore", "ignore", "ignore"],
      onExit: () => {
        this.#isOver = true;
        this.#onEnd();
      },
    });
    this.#process.unref();
  }

  static async open(clock: Clock, start: ProgramStart): Promise<LibsqlSeat> {
    const seat = new LibsqlSeat(clock);
    try {
      await seat.ask({ ...start, heapBytes }, startMs);
      return seat;
    } catch (error) {
      seat.end();
      throw error;
    }
  }

  usable(): boolean {
    return !this.#isOver;
  }

  end(): void {
    this.#isOver = true;
    this.#process.kill("SIGKILL");
  }

  async query({ timeoutMs, signal, ...ask }: QueryAsk): Promise<QueryAnswer> {
    const rows: Cell[][] = [];
    const onAbort = () => this.end();
    signal.addEventListener("abort", onAbort, { once: true });
    try {
      const done = await this.ask({ ask: "query", ...ask, rowBytesMax }, timeoutMs, (some) =>
        rows.push(...some),
      );
      const { columns = [], isTruncated = false, isSpent } = done.answer === "done" ? done : {};
      if (isSpent) this.end();
      return { columns, rows, isTruncated };
    } catch (error) {
      if (signal.aborted) throw cutOff();
      throw error;
    } finally {
      signal.removeEventListener("abort", onAbort);
    }
  }

  /** Ends the process when it takes longer. */
  async ask(ask: ProgramAsk, timeoutMs: number, onRows: (rows: Cell[][]) => void = () => {}): Promise<Done> {
    let cancel = () => {};
    try {
      return await new Promise<Done>((resolve, reject) => {
        if (this.#isOver) return reject(ended());
        cancel = this.#clock.after(timeoutMs, () => {
          this.end();
          reject(tookTooLong(timeoutMs));
        });
        this.#onEnd = () => reject(ended());
        this.#onAnswer = (answer) => {
          if (answer.answer === "rows") onRows(answer.rows);
          else if (answer.answer === "done" || answer.answer === "failed") resolve(answer);
          else reject(this.#refusal(answer));
        };
        this.#process.send(ask);
      });
    } finally {
      cancel();
      this.#onAnswer = () => {};
      this.#onEnd = () => {};
    }
  }

  #refusal(answer: Exclude<ProgramAnswer, { answer: "rows" | "done" | "failed" }>): Error {
    if (answer.answer === "defect") {
      this.end();
      return new StoreError("unavailable", `the database of the environment: ${answer.message}`);
    }
    return refusalOf(answer, () => this.end());
  }
}

const ended = () => new StoreError("unavailable", "the process of the environment's database ended");

function refusalOf({ why, message }: { why: string; message: string }, end: () => void): Fault {
  switch (why) {
    case "row":
      return rowTooLarge();
    case "too much":
      end();
      return tookTooMuch(message);
    default:
      return databaseSays("query", message);
  }
}
