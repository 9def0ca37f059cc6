import type { Command } from "commander";
import { SvcError } from "../sdk/index.ts";
import { addCommon, ask, askingOf, type CommonFlags } from "./command.ts";
import { fileText, inputText } from "./fields.ts";
import { type Io, usage } from "./io.ts";
import { shown } from "./show.ts";

/** Never an argument: others on the machine see those. One newline at the end belongs to the file. */
export async function secretText(io: Io, file: string | undefined, question: string): Promise<string> {
  if (file !== undefined) return fileText(file, "--value-file", io).replace(/\r?\n$/, "");
  if (!io.input.isTerminal) return (await inputText(io)).replace(/\r?\n$/, "");
  const said = await io.input.ask(question, { hidden: true });
  if (said === undefined || said === "") throw usage("nothing was typed");
  return said;
}

/** `svc secret set NAME`: the value comes from a file, from standard input, or from what a person types. */
export function addSecretSet(group: Command, io: Io): void {
  const command = group
    .command("set <name>")
    .description("Makes a secret, or gives it another value; it is read from standard input or asked for.")
    .option("--value-file <file>", "A file with the value.")
    .option("--description <text>", "What the secret is for.");
  addCommon(command).action(async (name: string) => {
    const flags = command.optsWithGlobals() as CommonFlags & { valueFile?: string; description?: string };
    const asking = askingOf(io, flags);
    const value = await secretText(io, flags.valueFile, `Value of ${name}: `);
    if (value === "") throw usage("the value is empty");
    const input = { name, value, ...(flags.description !== undefined && { description: flags.description }) };
    let answer: unknown;
    try {
      answer = await ask(asking, "secrets.create", input);
    } catch (error) {
      if (!(error instanceof SvcError) || error.status !== 409) throw error;
      answer = await ask(asking, "secrets.put", input);
    }
    await io.out(shown(answer, asking.form, { io, items: "" }));
  });
}
