#!/usr/bin/env bun
import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { dashboardAddress } from "./app/identity.ts";
import { StartFailure } from "./app/start-failure.ts";
import { databaseCommands } from "./cli/backup.ts";
import { importOrg } from "./cli/import.ts";
import { tail, tailHelp } from "./cli/tail.ts";
import { systemClock } from "./kit/clock.ts";
import { systemIds } from "./kit/ids.ts";
import { logLines } from "./kit/log-lines.ts";
import { redactText } from "./kit/redact.ts";
import { suggestion } from "./kit/setting.ts";
import { version } from "./kit/version.ts";
import { type RunningServer, startServer } from "./server.ts";
import { type Config, help, parseSettings } from "./settings/settings.ts";

const exit = { badSettings: 2, startFailed: 1 } as const;

function fail(code: number, lines: readonly string[]): never {
  for (const line of lines) process.stderr.write(`svc: ${line}\n`);
  process.exit(code);
}

/** What a person needs next who has just started the server. */
function banner({ url, grpcUrl, config, bootstrapped, bootstrapKeyFile }: RunningServer): string {
  const place = config.databaseUrl === undefined ? config.db : "PostgreSQL";
  const lines = [`svc ${version} on ${url}, data in ${place}`, ""];
  const file = resolve(bootstrapKeyFile);
  let key = "";
  if (config.dev) {
    lines.push("  Key         none needed: --dev lets everyone in as admin");
  } else if (bootstrapped.key === "failed") {
    lines.push(`  Key         none: ${file} cannot be written. Start again with --bootstrap-key-file FILE`);
  } else if (existsSync(file)) {
    key = ` -H "Authorization: Bearer $(sed -n 's/.*"key": "\\(.*\\)".*/\\1/p' ${file})"`;
    lines.push(`  Key         ${file}${bootstrapped.key === "issued" ? " (new)" : ""}`);
  }
  if (bootstrapped.password !== undefined) {
    lines.push(`  Dashboard   ${dashboardAddress}, password ${bootstrapped.password} (shown only now)`);
  }
  if (grpcUrl !== undefined) lines.push(`  gRPC        ${grpcUrl}`);
  lines.push(`  Try         curl${key} ${url}/api/v1/routes`, "  Demo        bun run demo", "");
  return `${lines.join("\n")}\n`;
}

async function serve(config: Config): Promise<void> {
  const clock = systemClock();
  const format = config.logFormat ?? (process.stdout.isTTY ? "text" : "json");
  const nodeId = config.nodeId ?? systemIds(clock).next("node");
  const log = logLines({ level: config.logLevel, format, clock, base: { node: nodeId } });
  let server: RunningServer | undefined;
  let stopping = false;
  const stop = async (signal: string) => {
    // A second signal ends the process at once, and so does the first while there is nothing to drain.
    if (stopping || !server) process.exit(stopping ? exit.startFailed : 0);
    stopping = true;
    log.info("server.stopping", { signal });
    try {
      await server.stop();
      log.info("server.stopped");
      process.exit(0);
    } catch (error) {
      log.error("server.stop_failed", { error });
      process.exit(exit.startFailed);
    }
  };
  process.on("SIGTERM", () => void stop("SIGTERM"));
  process.on("SIGINT", () => void stop("SIGINT"));
  // An unhandled rejection is a defect of one part: it must not end a process that does other work.
  let unhandled = 0;
  process.on("unhandledRejection", (error) =>
    log.error("process.unhandled_rejection", { count: ++unhandled, error }),
  );

  try {
    server = await startServer({ ...config, nodeId }, { clock, log });
  } catch (error) {
    const known = error instanceof StartFailure || !(error instanceof Error) || error.stack === undefined;
    if (!known) log.error("server.start_failed", { error });
    fail(exit.startFailed, [redactText(error instanceof Error ? error.message : String(error))]);
  }
  // Lines of JSON stay alone on their stream.
  (format === "text" ? process.stdout : process.stderr).write(banner(server));
}

async function runTail(argv: readonly string[]): Promise<never> {
  const over = new AbortController();
  for (const signal of ["SIGTERM", "SIGINT"]) process.on(signal, () => over.abort());
  // The reader closed its end: `svc tail ... | head`.
  process.stdout.on("error", () => process.exit(0));
  const { code, reasons } = await tail({
    argv,
    environment: process.env,
    out: (text) =>
      process.stdout.write(text) ? undefined : new Promise((done) => process.stdout.once("drain", done)),
    note: (text) => void process.stderr.write(`${text}\n`),
    signal: over.signal,
    isTerminal: process.stdout.isTTY === true,
  });
  await new Promise<void>((done) => process.stdout.write("", () => done()));
  if (code === 0) process.exit(0);
  fail(code, code === exit.badSettings ? [...reasons, "see: svc tail --help"] : reasons.map(redactText));
}

const databaseWork = { ...databaseCommands, import: importOrg };
const commands = ["serve", ...Object.keys(databaseWork), "tail", "help", "version"];

async function main(argv: readonly string[]): Promise<void> {
  const named = argv[0] !== undefined && !argv[0].startsWith("-");
  const command = named ? argv[0]! : "serve";
  const rest = named ? argv.slice(1) : argv;
  if (command === "help" || rest.includes("--help") || rest.includes("-h")) {
    process.stdout.write(command === "tail" || rest[0] === "tail" ? tailHelp() : help());
  } else if (command === "version" || rest.includes("--version")) {
    process.stdout.write(`${version}\n`);
  } else if (command === "serve") {
    const parsed = parseSettings(rest, process.env);
    if (!parsed.ok) fail(exit.badSettings, [...parsed.errors, "see: svc help"]);
    await serve(parsed.config);
  } else if (command === "tail") {
    await runTail(rest);
  } else if (command === "backup" || command === "restore" || command === "import") {
    const say = (line: string) => void process.stdout.write(`${line}\n`);
    const context = { argv: rest, environment: process.env, clock: systemClock(), say };
    const { did, reasons } = await databaseWork[command](context);
    if (did === "nothing: bad arguments") fail(exit.badSettings, [...reasons, "see: svc help"]);
    if (did === "nothing: refused") fail(exit.startFailed, reasons.map(redactText));
  } else {
    fail(exit.badSettings, [`unknown command ${command}${suggestion(command, commands)}`, "see: svc help"]);
  }
}

await main(process.argv.slice(2));
