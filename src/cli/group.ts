import type { Command } from "commander";
import type { PlainCommand } from "./command.ts";
import type { Io } from "./io.ts";

/** Commands about one matter, `svc run list`. */
export interface Group {
  name: string;
  about: string;
  aliases?: readonly string[];
  /** Commands that are one call. */
  plain?: readonly PlainCommand[];
  /** Groups below, `svc event schema list`. */
  groups?: readonly Group[];
  /** Commands that are more than a call. */
  more?: (group: Command, io: Io) => void;
  /** The command that is meant by an id in the place of a command: `svc run run_…`. */
  byId?: { command: string; id: RegExp };
}

/** A command by itself, `svc emit`. */
export interface LoneCommand {
  name: string;
  about: string;
  add: (program: Command, io: Io) => void;
}
