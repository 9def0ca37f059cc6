import { join } from "node:path";
import type { Command } from "commander";
import { rawCommands } from "../../src/cli/raw-commands.ts";
import { programOf } from "../../src/cli/run.ts";
import { withPart } from "./reference.ts";

export const commandsPath = join(import.meta.dir, "../../src/cli/README.md");

const cell = (text: string) => text.replaceAll("|", "\\|");

interface NamedCommand {
  /** As it is typed, without what follows. */
  name: string;
  command: Command;
}

function commandsBelow(command: Command, path: readonly string[]): NamedCommand[] {
  return command.commands.flatMap((one) => {
    const words = [...path, one.name()];
    if (one.commands.length > 0 && one.name() !== "call") return commandsBelow(one, words);
    return [{ name: words.join(" "), command: one }];
  });
}

/** The program with every command built whole. */
export function wholeProgram(): Command {
  const io = { environment: {}, isTerminal: false, columns: 80 } as never;
  const serve = { about: "Start the server; -f FILE reads a config file.", open: () => Promise.resolve(0) };
  const installed = { rawCommands: { serve, ...rawCommands }, startServer: (() => {}) as never };
  const names = programOf([], io, {}).commands.map((one) => one.name());
  return programOf(names, io, installed);
}

export const allCommands = (program: Command): NamedCommand[] => commandsBelow(program, []);

/** Every command as a table of Markdown. */
export function commandsTable(): string {
  const rows = allCommands(wholeProgram()).map(({ name, command }) => {
    const usage = command.registeredArguments
      .map((argument) => (argument.required ? `<${argument.name()}>` : `[${argument.name()}]`))
      .join(" ");
    const shown = name === "call" ? "call <operation>" : `${name} ${usage}`.trim();
    return `| \`svc ${cell(shown)}\` | ${cell(command.summary() || command.description())} |`;
  });
  return ["| command | what it does |", "|---|---|", ...rows].join("\n");
}

export async function freshCommandsPage(): Promise<string> {
  return withPart(await Bun.file(commandsPath).text(), "commands", commandsTable());
}

export async function writeCommands(): Promise<void> {
  await Bun.write(commandsPath, await freshCommandsPage());
}
