import { Command, CommanderError } from "commander";
import { redactText } from "../kit/redact.ts";
import { suggestion } from "../kit/setting.ts";
import { version } from "../kit/version.ts";
import { SvcError } from "../sdk/index.ts";
import { settingsText } from "../settings/settings.ts";
import { addCommon, addPlain } from "./command.ts";
import { accessGroups } from "./commands/access.ts";
import { callCommands } from "./commands/calls.ts";
import { eventGroups } from "./commands/events.ts";
import { exportCommand } from "./commands/export.ts";
import { functionGroups, listDeployments } from "./commands/functions.ts";
import { profileGroup } from "./commands/profile.ts";
import { projectionGroups } from "./commands/projections.ts";
import { cancelRun, listRuns, resumeRun, runGroups } from "./commands/runs.ts";
import { serverGroups } from "./commands/server.ts";
import { stateGroups } from "./commands/state.ts";
import { alertGroups, webhookGroups } from "./commands/webhooks.ts";
import { asksForHelp } from "./common-flags.ts";
import { addCompletion, completions, completionWord } from "./completion.ts";
import { addValidate } from "./config-file.ts";
import { addDev, type StartServer } from "./dev.ts";
import { addDoctor } from "./doctor.ts";
import type { Group, LoneCommand } from "./group.ts";
import { addInit } from "./init.ts";
import { CommandFailure, type ExitCode, exitCodes, type Io, isUnreachable, withPointer } from "./io.ts";
import { addLicenses } from "./licenses.ts";
import { addUserLogin } from "./login.ts";
import { addLogs } from "./logs.ts";
import { addMcp } from "./mcp/add.ts";
import type { GivenToRaw, RawCommands } from "./raw-commands.ts";
import { addRehearse } from "./rehearse.ts";
import { shownIo } from "./show.ts";
import { addWhy } from "./why.ts";

/** What the program has besides commands that ask a server. */
export interface Installed extends GivenToRaw {
  rawCommands?: RawCommands;
  startServer?: StartServer;
}

const groups: readonly Group[] = [
  ...runGroups,
  ...functionGroups,
  ...eventGroups,
  ...projectionGroups,
  ...stateGroups,
  ...webhookGroups,
  ...alertGroups,
  ...accessGroups,
  ...serverGroups,
  profileGroup,
];

const lone = (words: readonly string[], { startServer }: Installed): readonly LoneCommand[] => [
  ...callCommands(words),
  {
    name: "runs",
    about: "The newest runs.",
    add: (program, io) => void addPlain(program, { ...listRuns, name: "runs" }, io),
  },
  {
    name: "deployments",
    about: "Which builds are connected, and how many runs are pinned to each.",
    add: (program, io) => void addPlain(program, { ...listDeployments, name: "deployments" }, io),
  },
  {
    name: "rehearse",
    about: "Plays recorded runs through new code, without effects.",
    add: addRehearse,
  },
  { name: "logs", about: "What the handler of a run wrote.", add: addLogs },
  { name: "why", about: "Why a run failed or does not move, and what to do about it.", add: addWhy },
  { name: "cancel", about: "Cancels a run.", add: (program, io) => void addPlain(program, cancelRun, io) },
  { name: "resume", about: "Resumes a run.", add: (program, io) => void addPlain(program, resumeRun, io) },
  exportCommand,
  { name: "login", about: "Logs in, and keeps the session in a profile.", add: addUserLogin },
  { name: "init", about: "A project with one function, its test and a compose file.", add: addInit },
  { name: "doctor", about: "Looks at everything that may be wrong, and says what to do.", add: addDoctor },
  { name: "validate", about: "Checks a config file of serve -f.", add: addValidate },
  { name: "mcp", about: "A server for clients of the Model Context Protocol.", add: addMcp },
  ...(startServer
    ? [
        {
          name: "dev",
          about: "A server for one developer, with a worker that reloads, and runs as they happen.",
          add: (program: Command, io: Io) => addDev(program, io, startServer),
        },
      ]
    : []),
  { name: "licenses", about: "The licences of what svc is made of.", add: addLicenses },
  { name: "completion", about: "A script that completes commands in bash, zsh or fish.", add: addCompletion },
];

const headings = { start: "Start:", commands: "Commands:", groups: "Groups of commands:" } as const;

const inGroup = (group: string, { rawCommands = {} }: Installed) =>
  Object.entries(rawCommands).filter(([name]) => name.startsWith(`${group} `));

function fill(parent: Command, group: Group, io: Io, installed: Installed): void {
  for (const [name, { about }] of inGroup(group.name, installed))
    parent.command(name.slice(group.name.length + 1)).summary(about);
  for (const plain of group.plain ?? []) addPlain(parent, plain, io);
  group.more?.(parent, io);
  for (const below of group.groups ?? []) {
    const command = parent.command(below.name).summary(below.about).description(below.about);
    fill(command, below, io, installed);
  }
}

/** Only what the words name is built whole: a start costs what its command needs. */
export function programOf(words: readonly string[], io: Io, installed: Installed): Command {
  const program = new Command("svc");
  program
    .description("svc: events become durable runs.")
    .exitOverride()
    .configureOutput({ writeOut: (text) => void io.out(text), writeErr: () => {} })
    .configureHelp({ showGlobalOptions: false })
    .helpCommand(false)
    .addHelpText("after", `\nSettings of serve, each by flag or variable [default]:\n\n${settingsText()}`);
  const isNamed = (one: { name: string; aliases?: readonly string[] }) =>
    words.includes(one.name) || (one.aliases ?? []).some((alias) => words.includes(alias));
  for (const [name, { about }] of Object.entries(installed.rawCommands ?? {}).filter(
    ([name]) => !name.includes(" "),
  ))
    program.command(name).summary(about).helpGroup(headings.start).allowUnknownOption().helpOption(false);
  for (const one of lone(words, installed)) {
    if (isNamed(one)) one.add(program, io);
    else program.command(one.name).summary(one.about);
    program.commands.at(-1)!.helpGroup(headings.commands);
  }
  for (const group of groups) {
    const command = program.command(group.name).summary(group.about).helpGroup(headings.groups);
    for (const alias of group.aliases ?? []) command.alias(alias);
    if (isNamed(group)) fill(command.description(group.about), group, io, installed);
  }
  addCommon(program);
  return program;
}

/** The command that the words lead to, and the words that led there. */
export function commandAt(program: Command, words: readonly string[]): { command: Command; path: string[] } {
  let command = program;
  const path: string[] = [];
  for (const word of words) {
    const below = command.commands.find((one) => one.name() === word || one.aliases().includes(word));
    if (!below) continue;
    command = below;
    path.push(below.name());
  }
  return { command, path };
}

/** `svc run run_…` reads as `svc run get run_…`. */
function withById(words: readonly string[]): string[] {
  const group = groups.find(({ name, byId }) => byId !== undefined && name === words[0]);
  const isMeant = group?.byId?.id.test(words[1] ?? "");
  return isMeant ? [words[0]!, group!.byId!.command, ...words.slice(1)] : [...words];
}

/** What commander says, in our words, with the nearest name and where to read on. */
function usageOf(error: CommanderError, program: Command, words: readonly string[]): string[] {
  const { command, path } = commandAt(program, words);
  const see = path.length === 0 ? "svc help" : `svc ${path.join(" ")} --help`;
  return withPointer([wrongIn(error, program, command, path)], see);
}

function wrongIn(error: CommanderError, program: Command, command: Command, path: readonly string[]): string {
  const named = /'([^']*)'/.exec(error.message)?.[1] ?? "";
  if (error.code === "commander.unknownCommand") {
    const known = command.commands.flatMap((one) => [one.name(), ...one.aliases()]);
    return `unknown command ${[...path, named].join(" ")}${suggestion(named, known)}`;
  }
  if (error.code === "commander.unknownOption") {
    const known = [...command.options, ...program.options].map(({ long }) => long ?? "");
    return `${named}: unknown flag${suggestion(named, known)}`;
  }
  if (error.code === "commander.help")
    return `a command is needed: ${command.commands.map((one) => one.name()).join(", ")}`;
  return error.message.replace(/^error: /, "");
}

const refusesArguments = ({ status, code }: SvcError): boolean =>
  status === 400 && (code === "invalid_argument" || code === "bad_request");

/** What to do about a refusal whose text cannot say it, because every other client gets it as well. */
function nextOf({ status, code, message }: SvcError): string {
  if (status === 401 && !message.includes("password"))
    return ": set SVC_API_KEY, or use --key-file FILE or svc profile add, whose key goes to its own server alone";
  if (message === "unknown environment") return ": svc env list shows those of your key";
  if (code === "unimplemented") return ": the server may be of another version than this command; svc doctor";
  return "";
}

function codeOf(error: unknown, io: Io): { code: ExitCode; lines: readonly string[] } {
  if (error instanceof CommandFailure)
    return { code: error.code, lines: error.message === "" ? [] : [error.message] };
  if (io.signal.aborted) return { code: exitCodes.interrupted, lines: ["interrupted"] };
  if (error instanceof SvcError) {
    if (isUnreachable(error))
      return { code: exitCodes.unreachable, lines: [`${error.message}: svc doctor says more`] };
    return {
      code: refusesArguments(error) ? exitCodes.usage : exitCodes.refused,
      lines: [error.message + nextOf(error)],
    };
  }
  throw error;
}

const say = (io: Io, lines: readonly string[]) => {
  for (const line of lines) for (const one of line.split("\n")) io.note(redactText(one));
};

/** Runs one command line; undefined when something was started that stays. */
export async function runCli(
  argv: readonly string[],
  given: Io,
  installed: Installed = {},
): Promise<number | undefined> {
  const io = shownIo(given);
  const { rawCommands = {} } = installed;
  const [first = "", ...rest] = argv;
  const named = first === "help" ? rest : argv;
  const rawOf = (count: number) => {
    const name = named.slice(0, count).join(" ");
    return Object.hasOwn(rawCommands, name)
      ? { ...rawCommands[name]!, words: named.slice(count) }
      : undefined;
  };
  const raw = rawOf(2) ?? rawOf(1);
  const wantsHelp = first === "help" || rest.some(asksForHelp);
  if (raw?.help !== undefined && wantsHelp) {
    await io.out(raw.help);
    return exitCodes.ok;
  }
  if (raw && (raw.helps || !wantsHelp))
    return endOf(io, () => raw.open(wantsHelp ? ["--help"] : raw.words, io, installed));
  if (first === "version" || first === "--version") {
    await io.out(`${version}\n`);
    return exitCodes.ok;
  }
  if (first === completionWord) {
    await io.out(completions(programOf(rest, io, installed), rest));
    return exitCodes.ok;
  }
  const words = withById(raw ? ["--help"] : first === "help" ? [...rest, "--help"] : argv);
  const program = programOf(words, io, installed);
  return endOf(io, async () => {
    try {
      await program.parseAsync(words, { from: "user" });
    } catch (error) {
      if (!(error instanceof CommanderError)) throw error;
      if (error.exitCode === 0) return exitCodes.ok;
      say(io, usageOf(error, program, words));
      return exitCodes.usage;
    }
    return exitCodes.ok;
  });
}

/** What the work ends with; why it could not be done is said. */
async function endOf(io: Io, work: () => Promise<number | undefined>): Promise<number | undefined> {
  try {
    return await work();
  } catch (error) {
    const { code, lines } = codeOf(error, io);
    say(io, lines);
    return code;
  }
}
