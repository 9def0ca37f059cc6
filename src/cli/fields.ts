import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { type Command, Option } from "commander";
import type { Input } from "./call.ts";
import { type Io, usage } from "./io.ts";
import { choiceOf, flagOf, type OperationField, shortWords } from "./operations.ts";
import { localTime } from "./show.ts";

/** Objects that may be written as `key=value` on a command line. */
const pairs = new Set(["metadata", "headers", "eventHandlers"]);

const secretNames = new Set([
  ...["password", "current_password", "new_password"],
  ...["verifySecret", "new_value", "client_secret"],
]);

/** What opens something, and must not stand among arguments. */
export const isSecret = (name: string): boolean => secretNames.has(name);

/** What a person calls the two states of a switch that is no flag. */
const switches: Readonly<Record<string, boolean>> = {
  ...{ on: true, true: true, yes: true },
  ...{ off: false, false: false, no: false },
};

const pairText = /^([\w.-]+)=([\s\S]*)$/;

/** Standard input as `-`, a file named `@FILE`, or undefined for what is written itself. */
async function bytesNamed(text: string, flag: string, io: Io): Promise<Uint8Array | undefined> {
  if (text.startsWith("@")) return fileBytes(text.slice(1), flag, io);
  if (text !== "-") return undefined;
  if (io.input.isTerminal) throw usage(`${flag}: - reads standard input, which is a terminal`);
  return io.input.bytes();
}

function decoded(bytes: Uint8Array, flag: string, from: string): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw usage(`${flag}: ${from} is not UTF-8 text`);
  }
}

async function textOf(text: string, flag: string, io: Io): Promise<string> {
  const bytes = await bytesNamed(text, flag, io);
  return bytes
    ? decoded(bytes, flag, text === "-" ? "standard input" : resolve(io.folder, text.slice(1)))
    : text;
}

/** All of standard input as text. */
export const inputText = async (io: Io): Promise<string> =>
  decoded(await io.input.bytes(), "-", "standard input");

function fileBytes(name: string, flag: string, io: Pick<Io, "folder">): Uint8Array {
  const file = resolve(io.folder, name);
  try {
    return readFileSync(file);
  } catch (error) {
    throw usage(`${flag}: ${file} cannot be read: ${(error as NodeJS.ErrnoException).code}`);
  }
}

export const fileText = (name: string, flag: string, io: Pick<Io, "folder">): string =>
  decoded(fileBytes(name, flag, io), flag, resolve(io.folder, name));

export function parsedJson(text: string, flag: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw usage(`${flag}: must be JSON, such as '{"a": 1}', @FILE, or - for standard input`);
  }
}

async function jsonOf(texts: readonly string[], name: string, flag: string, io: Io): Promise<unknown> {
  const matched = pairs.has(name) ? texts.map((text) => pairText.exec(text)) : [];
  if (matched.length > 0 && matched.every((match) => match !== null))
    return Object.fromEntries(matched.map(([, key, value]) => [key, value]));
  return parsedJson(await textOf(texts.at(-1)!, flag, io), flag);
}

const isTime = /^(?:since|until|from|to|at|\w+Timestamp|\w+Time)$/;
/** A field that is a day of UTC, and no time of it. */
const isDay = /^The (?:first|last) day\b/;
const localForm = /^(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d)(:\d\d)?)?$/;

/** A day, or a time as lists show it, is read by this machine's zone. */
export function instantOf(text: string): string {
  const [, day, minute = "00:00", second = ":00"] = localForm.exec(text) ?? [];
  if (day === undefined) return text;
  const at = new Date(`${day}T${minute}${second}`);
  // A day that is not in the calendar is left to the server, which refuses it.
  return localTime(`${day}T${minute}${second}`) === `${day} ${minute}${second}` ? at.toISOString() : text;
}

/** The value of a field as it was written; throws a usage error that names the flag and the rule. */
export async function readField(
  { name, kind, about, choices = [] }: OperationField,
  given: unknown,
  flag: string,
  io: Io,
): Promise<unknown> {
  const texts = (Array.isArray(given) ? given : [given]).map(String);
  const text = texts.at(-1)!;
  const word = (one: string) => {
    const found = choiceOf(choices, one);
    if (found === undefined)
      throw usage(`${flag}: must be one of ${shortWords(choices).join(", ")}, not ${one}`);
    return found;
  };
  switch (kind) {
    case "switch":
      if (given === true) return true;
      if (!Object.hasOwn(switches, text.toLowerCase()))
        throw usage(`${flag}: must be on or off, not ${text}`);
      return switches[text.toLowerCase()];
    case "integer":
      if (!/^-?\d{1,15}$/.test(text)) throw usage(`${flag}: must be a whole number, not ${text}`);
      return Number(text);
    case "number":
      if (text.trim() === "" || !Number.isFinite(Number(text)))
        throw usage(`${flag}: must be a number, not ${text}`);
      return Number(text);
    case "choice":
      return word(text);
    case "words":
      return texts.flatMap((one) => one.split(",")).map(word);
    case "texts":
      return texts;
    case "json":
      return jsonOf(texts, name, flag, io);
    case "bytes":
      return (await bytesNamed(text, flag, io)) ?? text;
    case "text":
      // Words without a flag are names.
      if (!flag.startsWith("--")) return text;
      if (text !== "-" && !text.startsWith("@")) {
        if (!isSecret(name)) return isTime.test(name) && !isDay.test(about) ? instantOf(text) : text;
        throw usage(`${flag}: others on this machine see arguments: say @FILE, or - for standard input`);
      }
      return isSecret(name) ? (await textOf(text, flag, io)).replace(/\r?\n$/, "") : textOf(text, flag, io);
  }
}

const shownFor: Record<OperationField["kind"], string> = {
  bytes: " <text>",
  text: " <text>",
  integer: " <n>",
  number: " <n>",
  switch: "",
  choice: " <word>",
  texts: " <text...>",
  words: " <word...>",
  json: " <json>",
};

/** What the help says of a field. */
export function aboutField({ about, choices, fallback, required }: OperationField): string {
  const words =
    choices && choices.length > 0 && choices.length <= 12
      ? ` One of: ${shortWords(choices).join(", ")}.`
      : "";
  const standard = fallback === undefined ? "" : ` [${JSON.stringify(fallback)}]`;
  return `${required ? "Needed. " : ""}${about.replaceAll("`", "")}${words}${standard}`.trim();
}

/** Repeated flags gather, as `--metadata a=1 --metadata b=2`. */
const gather = (text: string, before: unknown): string[] => [...(Array.isArray(before) ? before : []), text];

/** A flag of the command for a field; its value stands under the field's name among the command's options. */
export function addField(command: Command, field: OperationField, flag = flagOf(field.name)): void {
  const option = new Option(`--${flag}${shownFor[field.kind].replace("...", "")}`, aboutField(field));
  if (field.kind === "texts" || field.kind === "words" || (field.kind === "json" && pairs.has(field.name)))
    option.argParser(gather);
  command.addOption(option);
}

/** The input of an operation out of what was written; fields that were not are left out. */
export async function inputOf(
  fields: readonly OperationField[],
  written: (field: OperationField) => { value: unknown; flag: string } | undefined,
  io: Io,
): Promise<Input> {
  const input: Record<string, unknown> = {};
  for (const field of fields) {
    const one = written(field);
    if (one === undefined || one.value === undefined) continue;
    input[field.name] = await readField(field, one.value, one.flag, io);
  }
  return input;
}
