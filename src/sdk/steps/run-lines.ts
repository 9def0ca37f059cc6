import { AsyncLocalStorage } from "node:async_hooks";
import { format } from "node:util";
import { isOwnLine, jsonOf } from "../wire/log.ts";
import type { LineLevel, WrittenLine } from "../wire/types.ts";

/** As many as the server keeps of an attempt, and bytes of a line. */
const linesMax = 200;
const lineCharsMax = 900;
/** Of a longer text that may hold secrets only the length is said: its beginning may be part of a secret. */
const maskedCharsMax = 64 * 1024;
/** Shorter secrets are words that stand everywhere. */
const secretCharsMin = 4;
const secretLineCharsMin = 8;

const escaped = (text: string) => JSON.stringify(text).slice(1, -1);

/** As it is, in JSON, in JSON in JSON, and as `util.inspect` writes it between either quotes. */
const waysOf = (one: string): string[] => {
  const inJson = escaped(one);
  const inspected = inJson.replaceAll('\\"', '"');
  return [one, inJson, escaped(inJson), inspected, inspected.replaceAll("'", "\\'")];
};

/** A secret as texts have it, and its lines, where texts are split at them. */
const formsOf = (secret: string): string[] => {
  const lines = secret.split(/\r?\n/).filter(({ length }) => length >= secretLineCharsMin);
  return [secret, ...lines].flatMap(waysOf);
};

/** Lines that the handler of one execution wrote and the server does not have, without its secrets. */
export class RunLines {
  readonly #given: Readonly<Record<string, string>>;
  #forms: readonly string[] | undefined;
  readonly #unsent: string[] = [];
  #sent = 0;
  #lost = 0;
  /** As far as the server knows it, and as the report under way tells it. */
  #lostKnown = 0;
  #lostTold = 0;
  #isOff = false;
  #seen = 0;

  constructor(secrets: Readonly<Record<string, string>> = {}) {
    this.#given = secrets;
  }

  /** Nearly all executions write nothing. */
  get #secrets(): readonly string[] {
    if (this.#forms) return this.#forms;
    const known = Object.values(this.#given).filter(({ length }) => length >= secretCharsMin);
    this.#forms = [...new Set(known.flatMap(formsOf))].sort((one, other) => other.length - one.length);
    return this.#forms;
  }

  /** How many wait to be sent. */
  get count(): number {
    return this.#isOff ? 0 : this.#unsent.length;
  }

  get isKnown(): boolean {
    return this.#isOff || (this.#unsent.length === 0 && this.#lost === this.#lostKnown);
  }

  /** Never throws: a line fails no run. */
  add({ level, text, fields, step, seen }: WrittenLine): void {
    if (seen !== undefined) this.#seen = seen;
    if (this.#sent + this.#unsent.length >= linesMax) {
      this.#lost++;
      return;
    }
    const head = JSON.stringify({
      ...{
        at: new Date().toISOString(),
        level,
        text: cut(this.#masked(`${text}`)).toWellFormed(),
      },
      ...(step !== undefined && { step: this.#masked(step) }),
    });
    const written = fields && jsonOf(fields);
    const given = written && this.#masked(written);
    const fits = given && head.length + given.length <= lineCharsMax && (given === written || isJson(given));
    this.#unsent.push(fits ? `${head.slice(0, -1)},"fields":${given}}` : head);
  }

  #masked(text: string): string {
    const secrets = this.#secrets;
    if (secrets.length > 0 && text.length > maskedCharsMax) return `(a text of ${text.length} characters)`;
    return secrets.reduce((rest, secret) => rest.replaceAll(secret, "***"), text);
  }

  /** The next of them as fields of a report, each followed by a comma; empty for none. */
  fields(): string {
    if (this.isKnown) return "";
    this.#lostTold = this.#lost;
    const lost = this.#lost > 0 ? `"log_lost":${this.#lost},` : "";
    return `"log_offset":${this.#sent},"log_seen":${this.#seen},"logs":[${this.#unsent.join(",")}],${lost}`;
  }

  /** The server has the first `count` of them. */
  stored(count: number): void {
    this.#sent += count;
    this.#unsent.splice(0, count);
    this.#lostKnown = this.#lostTold;
  }

  /** Something that came with them was refused: they may be why. */
  stop(): void {
    this.#isOff = true;
  }

  /** They were not. */
  goOn(): void {
    this.#isOff = false;
  }
}

const cut = (text: string): string =>
  text.length <= lineCharsMax ? text : `${text.slice(0, lineCharsMax - 1).replace(/[\ud800-\udbff]$/, "")}…`;

/** A number that is a secret leaves none behind it. */
function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

type WriteLine = (level: LineLevel, text: string) => void;

const writers = new AsyncLocalStorage<WriteLine>();
const levels = { debug: "debug", log: "info", info: "info", warn: "warn", error: "error" } as const;
let isOn = false;

/** From here on what a handler writes to `console` is kept with its run, too. */
function capture(): void {
  if (isOn) return;
  isOn = true;
  for (const [name, level] of Object.entries(levels) as [keyof typeof levels, LineLevel][]) {
    const plain = console[name].bind(console);
    const captured = (...given: unknown[]) => {
      plain(...given);
      const write = isOwnLine() ? undefined : writers.getStore();
      try {
        write?.(level, format(...given));
      } catch {} // What cannot be written fails no run.
    };
    try {
      console[name] = captured;
    } catch {} // It is frozen.
  }
}

/** Runs work whose lines on the console go to `write`. */
export function capturing<Result>(write: WriteLine, work: () => Result): Result {
  capture();
  return writers.run(write, work);
}
