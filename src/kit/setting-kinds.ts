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
