import { Argument, type Command, Option } from "commander";
import { SvcError } from "../sdk/index.ts";
import { bytesOf, call, framesOf, type Input, messagesOf } from "./call.ts";
import { commonFlags } from "./common-flags.ts";
import { type ConnectionFlags, connect, type ServerLink, targetOf } from "./connection.ts";
import { addField, fileText, inputOf, isSecret, parsedJson } from "./fields.ts";
import { namedByFlag } from "./flag-names.ts";
import { type Io, refused, usage } from "./io.ts";
import { listedMax, watchMsDefault } from "./limits.ts";
import { type CataloguedOperation, flagOf, type OperationField, operationNamed } from "./operations.ts";
import { whileWaiting } from "./progress.ts";
import { clearScreen, itemsOf, type OutputForm, type Shown, shown } from "./show.ts";

/** Flags of every command that asks a server. */
export interface CommonFlags extends ConnectionFlags {
  json?: boolean;
  jsonl?: boolean;
  verbose?: boolean;
  watch?: boolean | string;
  all?: boolean;
  yes?: boolean;
}

const commonGroup = "Server and output:";

export function addCommon(command: Command): Command {
  for (const [flags, about] of commonFlags)
    command.addOption(new Option(flags, about).helpGroup(commonGroup));
  return command;
}

/** Names that mean the same on every command. */
const reserved = new Set([
  "server",
  "env",
  "as-org",
  "profile",
  "key-file",
  "json",
  "jsonl",
  "verbose",
  "yes",
  "all",
  "watch",
  "help",
]);

export interface PlainCommand {
  /** `run get`: a name within its group. */
  name: string;
  operation: string;
  /** Fields that are written without a flag, in this order; one with `?` at its end may be left out. */
  takes?: readonly string[];
  /** The list in which its first word, or else its `id`, is looked up by name where it is no id. */
  byName?: string;
  /** Flags of other names than their field. */
  flags?: Readonly<Record<string, string>>;
  /** Fields that the command decides. */
  sets?: Input;
  shows?: Shown;
  /** The question before it is done; what is written as `{field}` is taken from the input. */
  confirms?: string;
  /** The question where the operation `found` finds the thing that its first word names. */
  replaces?: { found: string; question: string };
  /** Fields that the operation does not mark as needed. */
  needs?: readonly string[];
  about?: string;
  /** Of fields that the command takes otherwise than the operation. */
  abouts?: Readonly<Record<string, string>>;
  /** Meant where a group is followed by no name of a command. */
  isDefault?: boolean;
  /** Flags that name a file with the value of a field; `data` has one anyway. */
  files?: Readonly<Record<string, string>>;
  /** Flags that are no fields. */
  flagsToo?: readonly [flags: string, about: string][];
  /** Instead of one call whose answer is shown. */
  does?: (asking: Asking, input: Input, flags: Readonly<Record<string, unknown>>) => Promise<void>;
}

export const formOf = ({ json, jsonl }: CommonFlags): OutputForm => {
  if (json && jsonl) throw usage("--json and --jsonl: choose one");
  return json ? "json" : jsonl ? "jsonl" : "people";
};

/** A destructive command goes on by `--yes` or by what a person says; without a terminal it is refused. */
export async function confirm(question: string, { yes }: CommonFlags, io: Io): Promise<void> {
  if (yes) return;
  if (!io.input.isTerminal) throw usage(`${question} There is no terminal to ask: say --yes`);
  const said = await io.input.ask(`${question} [y/N] `);
  if (said === undefined || !/^y(es)?$/i.test(said.trim())) throw refused("nothing was done");
}

export interface Asking {
  io: Io;
  flags: CommonFlags;
  connection: ServerLink;
  form: OutputForm;
}

export const askingOf = (io: Io, flags: CommonFlags, timeoutMs?: number): Asking => ({
  ...{ io, flags, form: formOf(flags) },
  connection: connect(targetOf(flags, io), timeoutMs),
});

/** Calls an operation by name. */
export async function ask<Answer = unknown>(
  { io, flags, connection }: Asking,
  name: string | CataloguedOperation,
  input: Input = {},
): Promise<Answer> {
  const operation = typeof name === "string" ? operationNamed(name) : name;
  const startedAt = io.clock.elapsed();
  try {
    return await whileWaiting(io, call<Answer>(connection, operation, input, io.signal));
  } finally {
    if (flags.verbose)
      io.note(
        `${operation.name} at ${connection.target.url}: ${Math.round(io.clock.elapsed() - startedAt)} ms`,
      );
  }
}

const cursorOf = (answer: unknown): string | undefined => {
  const { nextCursor, next_cursor } = (answer ?? {}) as { nextCursor?: string; next_cursor?: string };
  return nextCursor || next_cursor || undefined;
};

/** An answer and, with `--all`, those of the pages behind it. */
async function* pagesOf(asking: Asking, operation: CataloguedOperation, input: Input) {
  let answer = await ask(asking, operation, input);
  yield answer;
  for (let cursor = cursorOf(answer); asking.flags.all && cursor !== undefined; cursor = cursorOf(answer)) {
    answer = await ask(asking, operation, { ...input, cursor });
    yield answer;
  }
}

/** The first page with the items of them all. */
function joined(pages: readonly unknown[], items: string | undefined): unknown {
  const [first] = pages;
  const list = itemsOf(first, items);
  if (pages.length === 1 || !list) return first;
  const all = pages.flatMap((page) => itemsOf(page, items) ?? []);
  const field = Object.entries(first as object).find(([, value]) => value === list)?.[0];
  if (field === undefined) return all;
  const { nextCursor: _none, next_cursor: _either, ...rest } = first as Record<string, unknown>;
  return { ...rest, [field]: all };
}

/** What a person is told of a list that is not shown to its end. */
function moreOf(answer: unknown, { fields }: CataloguedOperation, input: Input, items: string | undefined) {
  const cursor = cursorOf(answer);
  if (cursor !== undefined) return `there are more: --cursor ${cursor}, or --all`;
  const has = (field: string) => fields.some(({ name }) => name === field);
  if (!has("offset") || has("cursor")) return undefined;
  const { totalCount, total_count: total = totalCount ?? 0 } = (answer ?? {}) as Record<string, number>;
  const shownTo = Number(input.offset ?? 0) + (itemsOf(answer, items)?.length ?? 0);
  return total > shownTo ? `there are more, ${total} in all: --offset ${shownTo}, or --limit` : undefined;
}

const watchMsOf = (watch: true | string): number => {
  if (watch === true) return watchMsDefault;
  const seconds = Number(watch);
  if (!(seconds >= 0.2 && seconds <= 3600)) throw usage("--watch: must be seconds from 0.2 to 3600");
  return seconds * 1000;
};

/** Says the answer again each time it has changed, until ^C. */
async function keepShowing(
  io: Io,
  everyMs: number,
  look: () => Promise<{ text: string; bar: string | undefined }>,
): Promise<void> {
  let before: string | undefined;
  while (!io.signal.aborted) {
    const { text, bar = "" } = await look();
    if (text !== before) await io.out(io.isTerminal ? clearScreen + text : text);
    before = text;
    io.status(bar);
    await io.clock.sleep(everyMs, io.signal);
  }
  io.status("");
}

/** Says what is read, with `--watch` each time that it is another. */
export async function sayRead({ io, flags }: Asking, read: () => Promise<string>): Promise<void> {
  if (!flags.watch) return void (await io.out(await read()));
  await keepShowing(io, watchMsOf(flags.watch), async () => ({ text: await read(), bar: undefined }));
}

const jsonText = (value: unknown) => `${JSON.stringify(value)}\n`;

/** Asks for an operation of any mode and shows what is answered. */
export async function askAndShow(
  asking: Asking,
  operation: CataloguedOperation,
  input: Input,
  shows: Shown = {},
): Promise<void> {
  const { io, flags, connection, form } = asking;
  if (operation.mode === "duplex")
    throw usage(`${operation.name} talks in both directions: use the SDK (createWorker)`);
  if (operation.mode === "stream" || operation.mode === "watch") {
    const read = operation.mode === "stream" ? messagesOf : framesOf;
    for await (const message of read(connection, operation, input, io.signal))
      await io.out(jsonText(message));
    return;
  }
  if (operation.answersBytes) {
    for await (const piece of await bytesOf(connection, operation, input, io.signal)) await io.out(piece);
    return;
  }
  const items = shows.items ?? operation.items;
  const textOf = (answer: unknown) => shown(answer, form, { ...shows, io, items });
  const look = async () => {
    const pages: unknown[] = [];
    for await (const page of pagesOf(asking, operation, input)) pages.push(page);
    return joined(pages, items);
  };
  if (flags.watch)
    return keepShowing(io, watchMsOf(flags.watch), async () => {
      const answer = await look();
      return { text: textOf(answer), bar: shows.bar?.(answer) };
    });
  if (form === "jsonl") {
    for await (const page of pagesOf(asking, operation, input)) await io.out(textOf(page));
    return;
  }
  const answer = await look();
  await io.out(textOf(answer));
  const more = form === "people" ? moreOf(answer, operation, input, items) : undefined;
  if (more !== undefined) io.note(more);
}

const asked = /\{(\w+)\}/g;

const question = (text: string, input: Input) =>
  text.replaceAll(asked, (_all, field: string) => String(input[field]));

/** `value` fields that take what their plain twin takes as well. */
const isTwin = ({ name }: OperationField, fields: readonly OperationField[]): boolean =>
  name.endsWith("Value") && fields.some((one) => one.name === name.slice(0, -"Value".length));

/** `worker_id` beside `workerId`: what clients of another generation send. */
const isRespelt = (field: OperationField, fields: readonly OperationField[]): boolean =>
  fields.find(({ name }) => flagOf(name) === flagOf(field.name)) !== field;

interface Taken {
  field: OperationField;
  mayLack: boolean;
}

function takenBy({ operation, takes = [] }: PlainCommand, fields: readonly OperationField[]): Taken[] {
  return takes.map((text) => {
    const name = text.replace(/\?$/, "");
    const field = fields.find((one) => one.name === name);
    if (!field) throw new Error(`${operation} takes no ${name}: ${fields.map((one) => one.name).join(", ")}`);
    return { field, mayLack: text.endsWith("?") };
  });
}

/** How ids begin, as the words about their field say it. */
const prefixesIn = (about: string): string[] => about.match(/[a-z]+_(?=…)/g) ?? [];

/** The id of what has this name in a list; the word itself where it is an id, or nothing has that name. */
async function idOf(asking: Asking, list: string, { about }: OperationField, word: string): Promise<string> {
  if (prefixesIn(about).some((prefix) => word.startsWith(prefix))) return word;
  const { fields, items } = operationNamed(list);
  const whole = fields.some(({ name }) => name === "limit") ? { limit: listedMax } : {};
  // Who may not list them is told by the command itself what is wrong with the word.
  const answer = await ask(asking, list, whole).catch(() => []);
  const named = ((itemsOf(answer, items) ?? []) as { id: string; name?: string; email?: string }[]).filter(
    ({ name, email }) => name === word || email === word,
  );
  if (named.length > 1)
    throw usage(
      `${word} is the name of ${named.length}: say which by its id, ${named.map(({ id }) => id).join(", ")}`,
    );
  return named[0]?.id ?? word;
}

/** A command that is one call: its flags are the fields of the operation. */
export function addPlain(group: Command, plain: PlainCommand, io: Io): Command {
  const operation = operationNamed(plain.operation);
  const { sets = {}, flags: named = {}, shows = {}, confirms } = plain;
  const fields = operation.fields
    .filter((one) => !(one.name in sets) && !isTwin(one, operation.fields))
    .map((one) => ({ ...one, about: plain.abouts?.[one.name] ?? one.about }));
  const taken = takenBy(plain, fields);
  const command = group
    .command(plain.name, { isDefault: plain.isDefault === true })
    .summary(plain.about ?? operation.about)
    .description(
      `${plain.about ?? operation.about}\n\nOperation ${operation.name}; needs ${operation.action}.`,
    );
  for (const { field, mayLack } of taken) {
    const name = flagOf(field.name);
    command.addArgument(new Argument(mayLack ? `[${name}]` : `<${name}>`, field.about));
  }
  const others = fields.filter(
    (field) => !taken.some((one) => one.field === field) && !isRespelt(field, fields),
  );
  const flagNames = new Map(
    others.map((field) => {
      const flag = named[field.name] ?? flagOf(field.name);
      return [field, reserved.has(flag) && named[field.name] === undefined ? `field-${flag}` : flag];
    }),
  );
  for (const [field, flag] of flagNames) addField(command, field, flag);
  const files = others.flatMap((field) => {
    const flag = plain.files?.[field.name] ?? (field.name === "data" ? "data-file" : undefined);
    return flag === undefined ? [] : [{ field, flag }];
  });
  for (const { field, flag } of files)
    command.option(`--${flag} <file>`, `A file with --${flagNames.get(field)}.`);
  for (const [flag, about] of plain.flagsToo ?? []) command.option(flag, about);
  addModes(command, operation, confirms !== undefined || plain.replaces !== undefined);
  addCommon(command).action(async (...given: unknown[]) => {
    const options = command.optsWithGlobals() as CommonFlags & Record<string, unknown>;
    const words = given.slice(0, taken.length);
    const input: Record<string, unknown> = {
      ...sets,
      ...(await inputOf(
        [...taken.map(({ field }) => field), ...others],
        (field) => {
          const at = taken.findIndex((one) => one.field === field);
          if (at >= 0) return { value: words[at], flag: flagOf(field.name) };
          const flag = flagNames.get(field)!;
          return { value: options[camel(flag)], flag: `--${flag}` };
        },
        io,
      )),
    };
    for (const field of others)
      if (isSecret(field.name) && field.required && input[field.name] === undefined && io.input.isTerminal)
        input[field.name] = await io.input.ask(`${field.name}: `, { hidden: true });
    for (const { field, flag } of files) {
      const named = options[camel(flag)];
      if (named === undefined) continue;
      const text = fileText(String(named), `--${flag}`, io);
      input[field.name] = field.kind === "json" ? parsedJson(text, `--${flag}`) : text;
    }
    const missing = others.find(
      ({ name, required }) => (required || plain.needs?.includes(name)) && input[name] === undefined,
    );
    if (missing) throw usage(`--${flagNames.get(missing)} is needed: ${missing.about}`);
    const unsaid = [...(confirms ?? "").matchAll(asked)].find(([, name]) => input[name!] === undefined)?.[1];
    if (unsaid !== undefined)
      throw usage(`--${flagNames.get(others.find(({ name }) => name === unsaid)!)} is needed`);
    const asking = askingOf(io, options);
    if (confirms !== undefined) await confirm(question(confirms, input), options, io);
    if (plain.replaces && !options.yes && (await isThere(asking, plain.replaces.found, taken, input)))
      await confirm(question(plain.replaces.question, input), options, io);
    const first = taken[0]?.field ?? fields.find(({ name }) => name === "id");
    if (plain.byName && first)
      input[first.name] = await idOf(asking, plain.byName, first, String(input[first.name]));
    try {
      if (plain.does) await plain.does(asking, input, options);
      else await askAndShow(asking, operation, input, shows);
    } catch (error) {
      throw namedByFlag(error, flagNames);
    }
  });
  return command;
}

/** Whether the operation finds what the words of the command name. */
async function isThere(
  asking: Asking,
  found: string,
  taken: readonly { field: OperationField }[],
  input: Input,
): Promise<boolean> {
  const named = Object.fromEntries(taken.map(({ field: { name } }) => [name, input[name]]));
  try {
    await ask(asking, found, named);
    return true;
  } catch (error) {
    if (error instanceof SvcError && error.status === 404) return false;
    throw error;
  }
}

const camel = (flag: string): string =>
  flag.replaceAll(/-(\w)/g, (_all, letter: string) => letter.toUpperCase());

/** What a list can do besides, and what destroys must ask. */
function addModes(command: Command, operation: CataloguedOperation, confirms: boolean): void {
  if (operation.mode === "unary" && operation.reads && !operation.answersBytes)
    command.option(
      "--watch [seconds]",
      "Repeat every so many seconds, and print what changed, until ^C [2].",
    );
  if (operation.reads && operation.fields.some(({ name }) => name === "cursor"))
    command.option("--all", "All pages.");
  if (confirms) command.option("--yes", "Do not ask.");
}
