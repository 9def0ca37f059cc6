#!/usr/bin/env -S bun --no-env-file --config=/dev/null
import { existsSync, readFileSync } from "node:fs";
import { asksForHelp, isCommonFlag } from "./cli/common-flags.ts";
import { exitCodes, withPointer } from "./cli/io.ts";
import { keepMemory } from "./cli/kept-memory.ts";
import { shownText } from "./kit/log-lines.ts";

// All else is loaded where it is needed: a server starts this file twice, and loads longer than commands run.

function say(lines: readonly string[]): void {
  for (const line of lines) process.stderr.write(`svc: ${shownText(line)}\n`);
}

/**
 * `bun PATH/src/main.ts` typed by hand makes Bun read the current folder's `.env`, maybe a stranger's. On
 * Linux the variables that this process was given are known; others go. `--env-file` was asked for.
 */
function forgetEnvFile(): void {
  const file = "/proc/self/environ";
  const isSaid = process.execArgv.some((one) => /^--(no-)?env-file/.test(one));
  if (isSaid || !existsSync(file)) return;
  const given = new Set(
    readFileSync(file, "utf8")
      .split("\0")
      .map((one) => one.slice(0, one.indexOf("="))),
  );
  for (const name of Object.keys(process.env)) if (!given.has(name)) delete process.env[name];
}

async function serve(argv: readonly string[]): Promise<number | undefined> {
  keepMemory();
  const { serveArguments } = await import("./cli/serve-arguments.ts");
  const parsed = await serveArguments(argv, process.env, process.cwd());
  if (!parsed.ok) {
    say(withPointer(parsed.errors, "svc help"));
    return exitCodes.usage;
  }
  say(parsed.notices);
  await (await import("./app/serve.ts")).serve(parsed.config, parsed.organizations);
  return undefined;
}

async function command(words: readonly string[]): Promise<number | undefined> {
  const [{ runCli }, { processIo }, { rawCommands }] = await Promise.all([
    import("./cli/run.ts"),
    import("./cli/process-io.ts"),
    import("./cli/raw-commands.ts"),
  ]);
  return runCli(words, processIo(), {
    startServer: async (config, options) => (await import("./server.ts")).startServer(config, options),
    rowReader: async () => (await import("./app/import-readers.ts")).requireRow,
    rawCommands: {
      serve: { about: "Start the server; -f FILE reads a config file.", open: serve },
      ...rawCommands,
    },
  });
}

/**
 * Without a command, flags are those of `serve`, unless they are those of every other command. Without any
 * word a person looks around, and gets the commands instead of a server in the folder where they stand.
 */
async function main(argv: readonly string[]): Promise<number | undefined> {
  const [first = "help"] = argv;
  const serves = first === "serve" || (first.startsWith("-") && !isCommonFlag(first));
  const flags = first === "serve" ? argv.slice(1) : argv;
  if (serves && !flags.some(asksForHelp) && !flags.includes("--version")) return serve(flags);
  return command(
    serves ? [flags.some(asksForHelp) ? "help" : "version"] : argv.length === 0 ? [first] : argv,
  );
}

forgetEnvFile();
const code = await main(process.argv.slice(2));
if (code !== undefined) {
  await new Promise<void>((done) => process.stdout.write("", () => done()));
  process.exit(code);
}
