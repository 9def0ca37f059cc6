import type { Clock } from "../kit/clock.ts";

/** What a command reads and writes. Only `processIo` of it knows a process, so that tests need none. */
export interface Io {
  environment: Readonly<Record<string, string | undefined>>;
  /** Where relative names of files begin. */
  folder: string;
  home: string;
  /** Waits for a slow reader. */
  out: (text: string | Uint8Array) => void | Promise<void>;
  /** Problems, questions and notices, for people. */
  note: (text: string) => void;
  /** Progress of a long command: a line on a terminal that the next one replaces and an empty text clears. */
  status: (text: string) => void;
  /** Standard output is a terminal: colours, and lists that redraw themselves. */
  isTerminal: boolean;
  columns: number;
  input: {
    isTerminal: boolean;
    /** All of standard input. */
    bytes: () => Promise<Uint8Array>;
    /** One line that a person types; undefined when they ended the input instead. */
    ask: (question: string, options?: { hidden?: boolean }) => Promise<string | undefined>;
  };
  /** Raised by ^C. */
  signal: AbortSignal;
  clock: Clock;
}

export const exitCodes = { ok: 0, refused: 1, usage: 2, unreachable: 3, interrupted: 130 } as const;

export type ExitCode = (typeof exitCodes)[keyof typeof exitCodes];

/** No answer came: `timeout` as well, whatever the server did meanwhile. */
export const isUnreachable = ({ code }: { code: string }): boolean =>
  code === "unreachable" || code === "timeout";

/** Ends a command with a line for people. */
export class CommandFailure extends Error {
  readonly code: ExitCode;

  constructor(code: ExitCode, message: string) {
    super(message);
    this.name = "CommandFailure";
    this.code = code;
  }
}

export const usage = (message: string) => new CommandFailure(exitCodes.usage, message);
export const refused = (message: string) => new CommandFailure(exitCodes.refused, message);

/** What is wrong with a command line, one reason a line; the last one says where to read on. */
export const withPointer = (reasons: readonly string[], see: string): string[] =>
  reasons.map((reason, at) => {
    if (at < reasons.length - 1) return reason;
    return `${reason}${reason.endsWith("?") ? "" : ";"} see: ${see}`;
  });
