import { join } from "node:path";
import type { Command } from "commander";
import { rawCommands } from "../../src/cli/raw-commands.ts";
import { programOf } from "../../src/cli/run.ts";
import { withPart } from "./reference.ts";

export const commandsPath = join(import.meta.dir, "../../src/cli/README.md");

const cell = (text: string) => text.replaceAll("|", "\\|");

function rowsBelow(command: Command, path: readonly string[]): string[] {
  return command.commands.flatMap((one) => {
    const words = [...path, one.name()];
    if (one.commands.length > 0 && one.name() !== "call") return rowsBelow(one, words);
    const usage = one.registeredArguments
      .map((argument) => (argument.required ? `<${argument.name()}>` : `[${argument.name()}]`))
      .join(" ");
    const shown = one.name() === "call" ? "call <operation>" : [...words, usage].join(" ").trim();
    return [`| \`svc ${cell(shown)}\` | ${cell(one.summary() || one.description())} |`];
  });
}

/** Every command as a table of Markdown. */
export function commandsTable(): string {
  const io = { environment: {}, isTerminal: false, columns: 80 } as never;
  const serve = { about: "Start the server; -f FILE reads a config file.", open: () => Promise.resolve(0) };
  const names = programOf([], io, {}).commands.map((one) => one.name());
  const program = programOf(names, io, {
    rawCommands: { serve, ...rawCommands },
    startServer: (() => {}) as never,
  });
  return ["| command | what it does |", "|---|---|", ...rowsBelow(program, [])].join("\n");
}

export async function freshCommandsPage(): Promise<string> {
  return withPart(await Bun.file(commandsPath).text(), "commands", commandsTable());
}

export async function writeCommands(): Promise<void> {
  await Bun.write(commandsPath, await freshCommandsPage());
}
