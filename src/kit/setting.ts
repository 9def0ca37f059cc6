import { parseNetwork } from "./addresses.ts";

/** How the text of a setting becomes its value. `read` answers undefined when the text breaks the rule. */
export interface Kind<Value> {
  /** Completes "must be …". */
  readonly rule: string;
  /** Stands for the value in `--help`. */
  readonly shown: string;
  readonly read: (text: string) => Value | undefined;
  /** Which part of the rule a text breaks, where the rule has several; it must not repeat a secret. */
  readonly flawOf?: (text: string) => string | undefined;
}

/** A whole number; `unit` is said in the rule (`milliseconds`), empty for a bare count. */
export const integer = (min: number, max: number, unit = ""): Kind<number> => ({
  rule: `a whole number${unit && ` of ${unit}`} from ${min} to ${max}`,
  shown: "N",
  read(text) {
    const number = /^\d{1,15}$/.test(text) ? Number(text) : Number.NaN;
    return number >= min && number <= max ? number : undefined;
  },
});

/** A share of a whole. */
export const fraction: Kind<number> = {
  rule: "a number from 0 to 1",
  shown: "N",
  read: (text) => (/^(0?\.\d{1,9}|[01](\.0{1,9})?)$/.test(text) ? Number(text) : undefined),
};

const booleans: Record<string, boolean> = { true: true, "1": true, false: false, "0": false };

export const boolean: Kind<boolean> = {
  rule: "true or false",
  shown: "BOOL",
  read: (text) => booleans[text.toLowerCase()],
};

const unitsMs: Record<string, number> = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** A span of time in milliseconds, of one unit. */
export const duration = (minMs: number, maxDays: number): Kind<number> => ({
  rule: `a whole number with s, m, h or d, from ${minMs / 1_000}s to ${maxDays}d, or 0 for never`,
  shown: "TIME",
  read(text) {
    if (text === "0") return 0;
    const [, amount, unit = ""] = /^(\d{1,9})([smhd])$/.exec(text) ?? [];
    const ms = Number(amount) * (unitsMs[unit] ?? Number.NaN);
    return ms >= minMs && ms <= maxDays * unitsMs.d! ? ms : undefined;
  },
});

export const choice = <Word extends string>(...words: Word[]): Kind<Word> => ({
  rule: `one of ${words.join(", ")}`,
  shown: words.join("|"),
  read: (text) => words.find((word) => word === text.toLowerCase()),
});

/** One line of anything, such as a path. */
export const line = (shown: string): Kind<string> => ({
  rule: "one line of text, not empty",
  shown,
  read: (text) => (/^[^\0\r\n]+$/.test(text) && text.trim() ? text : undefined),
});

export const matching = (pattern: RegExp, rule: string, shown: string): Kind<string> => ({
  rule,
  shown,
  read: (text) => (pattern.test(text) ? text : undefined),
});

/** A URL, or several with commas between, each with one of these schemes. */
export const url = (...schemes: string[]): Kind<string> => ({
  rule: `a URL that starts with ${schemes.map((scheme) => `${scheme}://`).join(" or ")}`,
  shown: "URL",
  read(text) {
    const fits = (one: string) => {
      const parsed = URL.parse(one.trim());
      return parsed !== null && schemes.some((scheme) => parsed.protocol === `${scheme}:`);
    };
    return text.split(",").every(fits) ? text : undefined;
  },
});

/** Exactly one URL. */
export const oneUrl = (...schemes: string[]): Kind<string> => {
  const { rule, shown, read } = url(...schemes);
  return { rule, shown, read: (text) => (text.includes(",") ? undefined : read(text)) };
};

/** `10.0.0.0/8,fd00::/8`, single addresses, or `true` for all. */
export const networks: Kind<readonly string[] | "all"> = {
  rule: "true, or networks such as 10.0.0.0/8 with commas between",
  shown: "CIDR",
  read(text) {
    if (text.toLowerCase() === "true") return "all";
    const list = text.split(",").map((one) => one.trim());
    return list.every((one) => parseNetwork(one) !== undefined) ? list : undefined;
  },
};

/** One setting: everything that is known about it, once. */
export interface Setting<Value, Fallback extends Value | undefined> {
  readonly flag?: string;
  readonly env?: string;
  readonly parse: Kind<Value>;
  readonly fallback: Fallback;
  /** One sentence, for `--help` and for the table of the docs. */
  readonly about: string;
  /** Its value is never shown, not even in an error. */
  readonly secret?: boolean;
  /** The default in words, where `fallback` does not say it. */
  readonly otherwise?: string;
}

export type Settings = Readonly<Record<string, Setting<unknown, unknown>>>;

export type Values<Rows extends Settings> = {
  readonly [Name in keyof Rows]: Rows[Name] extends Setting<infer Value, infer Fallback>
    ? Value | (undefined extends Fallback ? undefined : never)
    : never;
};

export const setting = <Value, const Fallback extends Value | undefined>(
  row: Setting<Value, Fallback>,
): Setting<Value, Fallback> => row;

export type Origin = "flag" | "environment" | "default";

export type SettingsOutcome<Rows extends Settings> =
  | { ok: true; values: Values<Rows>; origins: Readonly<Record<keyof Rows, Origin>> }
  | { ok: false; errors: string[] };

/** Variables with this prefix are ours, so a misspelt one is an error and not silence. */
const ourPrefix = "SVC_";

export interface SettingsSource {
  argv: readonly string[];
  environment: Readonly<Record<string, string | undefined>>;
  /** Variables of ours that other programs read: known, and left alone. */
  elsewhere: (name: string) => boolean;
  /** Takes the arguments that belong to no flag; without it they are errors. */
  words?: string[];
}

/** How many letters must change to get from one word to the other. */
function distance(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, place) => place);
  for (let i = 1; i <= from.length; i++) {
    const next = [i];
    for (let j = 1; j <= to.length; j++) {
      const swap = row[j - 1]! + (from[i - 1] === to[j - 1] ? 0 : 1);
      next[j] = Math.min(swap, row[j]! + 1, next[j - 1]! + 1);
    }
    row = next;
  }
  return row[to.length]!;
}

/** ", did you mean X?" when a known word is close enough to have been meant. */
export function suggestion(word: string, known: readonly string[]): string {
  const [best] = known
    .map((one) => ({ one, off: distance(word, one) }))
    .sort((a, b) => a.off - b.off || a.one.localeCompare(b.one));
  return best && best.off <= Math.max(2, word.length / 3) ? `, did you mean ${best.one}?` : "";
}

const isSwitch = (row: Settings[string]) => row.parse.shown === "BOOL";

interface GivenSetting {
  text: string;
  from: Exclude<Origin, "default">;
  /** As the user wrote it, for errors. */
  name: string;
}

function readFlags(
  rows: Settings,
  { argv, words }: Pick<SettingsSource, "argv" | "words">,
  errors: string[],
): Map<string, GivenSetting> {
  const byFlag = new Map(Object.entries(rows).flatMap(([name, row]) => (row.flag ? [[row.flag, name]] : [])));
  const given = new Map<string, GivenSetting>();
  for (let place = 0; place < argv.length; place++) {
    const argument = argv[place]!;
    // Not repeated in the error: it may be a secret that lost its flag.
    if (!argument.startsWith("--")) {
      if (words) words.push(argument);
      else errors.push(`argument ${place + 1} belongs to no flag`);
      continue;
    }
    const equals = argument.indexOf("=");
    const flag = equals < 0 ? argument : argument.slice(0, equals);
    const name = byFlag.get(flag);
    const row = name === undefined ? undefined : rows[name];
    if (name === undefined || row === undefined) {
      errors.push(`${flag}: unknown flag${suggestion(flag, [...byFlag.keys()])}`);
      // Its value is no argument of its own.
      if (equals < 0 && argv[place + 1]?.startsWith("--") === false) place++;
      continue;
    }
    if (equals >= 0) {
      given.set(name, { text: argument.slice(equals + 1), from: "flag", name: flag });
    } else if (isSwitch(row)) {
      given.set(name, { text: "true", from: "flag", name: flag });
    } else if (argv[place + 1] === undefined || argv[place + 1]!.startsWith("--")) {
      errors.push(`${flag}: needs a value, ${row.parse.rule}`);
    } else {
      given.set(name, { text: argv[++place]!, from: "flag", name: flag });
    }
  }
  return given;
}

function readEnvironment(
  rows: Settings,
  source: SettingsSource,
  errors: string[],
): Map<string, GivenSetting> {
  const byVariable = new Map(
    Object.entries(rows).flatMap(([name, row]) => (row.env ? [[row.env, name]] : [])),
  );
  const given = new Map<string, GivenSetting>();
  for (const [variable, text] of Object.entries(source.environment)) {
    const name = byVariable.get(variable);
    if (name === undefined) {
      if (!variable.startsWith(ourPrefix) || source.elsewhere(variable)) continue;
      errors.push(`${variable}: unknown variable${suggestion(variable, [...byVariable.keys()])}`);
    } else if (text !== undefined && text !== "") {
      given.set(name, { text, from: "environment", name: variable });
    }
  }
  return given;
}

/**
 * A flag beats a variable, a variable the default; an empty variable counts as not set. All errors at once.
 */
export function readSettings<Rows extends Settings>(
  rows: Rows,
  source: SettingsSource,
): SettingsOutcome<Rows> {
  const errors: string[] = [];
  const flags = readFlags(rows, source, errors);
  const variables = readEnvironment(rows, source, errors);
  const values: Record<string, unknown> = {};
  const origins: Record<string, Origin> = {};
  for (const [name, row] of Object.entries(rows)) {
    const given = flags.get(name) ?? variables.get(name);
    origins[name] = given?.from ?? "default";
    values[name] = given ? row.parse.read(given.text) : row.fallback;
    if (given && values[name] === undefined) {
      const not = row.secret ? "" : `, not ${JSON.stringify(given.text.slice(0, 80))}`;
      const flaw = row.parse.flawOf?.(given.text);
      errors.push(`${given.name}: must be ${row.parse.rule}${flaw === undefined ? "" : `: ${flaw}`}${not}`);
    }
  }
  if (errors.length > 0) return { ok: false, errors };
  return { ok: true, values: values as Values<Rows>, origins: origins as Record<keyof Rows, Origin> };
}

const defaultOf = (row: Settings[string]): string =>
  row.otherwise ?? (row.fallback === undefined ? "" : String(row.fallback));

/** The rows as text for a terminal. */
export function settingsHelp(rows: Settings): string {
  const all = Object.values(rows);
  const left = (row: Settings[string]) =>
    row.flag ? `${row.flag}${isSwitch(row) ? "" : ` ${row.parse.shown}`}` : "";
  const flagWidth = Math.max(...all.map((row) => left(row).length));
  const variableWidth = Math.max(...all.map((row) => row.env?.length ?? 0));
  const lines = all.map((row) => {
    const standard = defaultOf(row);
    const end = `${row.about}${standard && ` [${standard}]`}`;
    return `  ${left(row).padEnd(flagWidth)}  ${(row.env ?? "").padEnd(variableWidth)}  ${end}`;
  });
  return `${lines.join("\n")}\n`;
}

/** The rows as a Markdown table. */
export function settingsTable(rows: Settings): string {
  const code = (text: string | undefined) => (text ? `\`${text}\`` : "");
  const lines = Object.values(rows).map((row) => {
    const standard = row.otherwise ?? code(defaultOf(row));
    return `| ${code(row.flag)} | ${code(row.env)} | ${standard} | ${row.parse.rule} | ${row.about} |`;
  });
  return ["| Flag | Variable | Default | Value | Meaning |", "|---|---|---|---|---|", ...lines, ""]
    .join("\n")
    .replaceAll(/ {2,}/g, " ");
}
