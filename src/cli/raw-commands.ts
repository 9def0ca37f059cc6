import { shownText } from "../kit/log-lines.ts";
import { redactText } from "../kit/redact.ts";
import type { CommandOutcome, Command as DatabaseCommand } from "./backup.ts";
import type { RequireRow } from "./import-rows.ts";
import { exitCodes, type Io, usage, withPointer } from "./io.ts";
import { barOf } from "./progress.ts";

/** What raw commands need of the server's rooms, loaded when one runs. */
export interface GivenToRaw {
  rowReader?: () => Promise<RequireRow>;
}

/** A command that reads its own arguments. */
export interface RawCommand {
  about: string;
  /** Undefined when something was started that stays. */
  open: (argv: readonly string[], io: Io, given: GivenToRaw) => Promise<number | undefined>;
  /** What `--help` answers; without it, the help of the whole program. */
  help?: string;
  /** It answers `--help` itself. */
  helps?: boolean;
}

/** By the word, or by the name of a group and a word in it. */
export type RawCommands = Readonly<Record<string, RawCommand>>;

const follow: RawCommand["open"] = async (argv, io) => (await import("./tail.ts")).runTail(argv, io);

const ofStream: RawCommand["open"] = async ([id, ...rest], io, given) => {
  const isNamed = id !== undefined && !id.startsWith("-");
  if (!isNamed && id !== "--help") throw usage("svc stream subscribe: the id of the stream is needed");
  return follow(isNamed ? [`entity:*.${id}.>`, ...rest] : [id, ...rest], io, given);
};

const openImport = async ({ rowReader }: GivenToRaw) => {
  const { importOrg } = await import("./import.ts");
  const requireRow = await rowReader!();
  return (command: DatabaseCommand) => importOrg({ ...command, requireRow });
};

/** Commands that open a database without a server; ^C ends one that `hears` it between two transactions. */
const database =
  (
    load: (given: GivenToRaw) => Promise<(command: DatabaseCommand) => Promise<CommandOutcome>>,
    { hears = false } = {},
  ): RawCommand["open"] =>
  async (argv, io, given) => {
    const run = await load(given);
    const line = (text: string) => void io.out(`${shownText(text)}\n`);
    const { did, reasons } = await run({
      ...{ argv, environment: io.environment, clock: io.clock, say: line },
      progress: (done, total) => io.status(barOf(done, total, "lines")),
      ...(hears && { signal: io.signal }),
    });
    io.status("");
    const said = did === "nothing: bad arguments" ? withPointer(reasons, "svc help") : reasons;
    for (const reason of said) io.note(redactText(reason));
    if (did === "all") return exitCodes.ok;
    if (hears && io.signal.aborted) return exitCodes.interrupted;
    return did === "nothing: refused" ? exitCodes.refused : exitCodes.usage;
  };

const backupHelp = `svc backup --db FILE --to FILE [--force]

Copies the database file of a node, also while its server runs. --force replaces an older backup.
`;

const restoreHelp = `svc restore --from FILE --db FILE [--force]
svc restore --epoch --database-url URL
svc restore --moved --database-url URL

Puts a backup of a database file in place, while its server is stopped; --force replaces the file that is there. After pg_restore,
--epoch makes clients notice that positions were set back. After a move that lost nothing, --moved accepts the new server.
`;

const importHelp = `svc import FILE --db FILE [--org ID] [--undo]
svc import FILE --database-url URL [--org ID] [--undo]

Reads what svc export wrote into an empty org: --org names it by its id, else a new org is made. The server of a database file must be
stopped. After ^C the same command goes on, and --undo empties the org instead.
`;

export const rawCommands: RawCommands = {
  backup: {
    about: "Copy the database file, also while its server runs: --db FILE --to FILE [--force]",
    help: backupHelp,
    open: database(async () => (await import("./backup.ts")).backup),
  },
  restore: {
    about:
      "Put a backup in place: --from FILE --db FILE [--force]; after pg_restore: --epoch --database-url URL; after a move: --moved",
    help: restoreHelp,
    open: database(async () => (await import("./backup.ts")).restore),
  },
  import: {
    about:
      "Read what svc export wrote into an empty org: FILE --db FILE | --database-url URL [--org ORG] [--undo]",
    help: importHelp,
    open: database(openImport, { hears: true }),
  },
  tail: { about: "Follow what happens on a server: PATTERN... (svc tail --help)", open: follow, helps: true },
  subscribe: { about: "The same as tail.", open: follow, helps: true },
  "stream subscribe": {
    about: "Follow what is appended to a stream: ID, and the flags of tail",
    open: ofStream,
    helps: true,
  },
};
