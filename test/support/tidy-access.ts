import type { Law } from "./tidy-law.ts";
import type { Rule } from "./tidy-rules.ts";
import { codeOf, lineAt, type Source } from "./tidy-source.ts";

/** Where it is decided who may do what: what is changed here by what was read before is a right that comes back. */
const rooms = [
  "users",
  "keys",
  "roles",
  "policies",
  "sessions",
  "platform",
  "tenancy",
  "keyring",
  "secrets",
] as const;
const pure = /\/(rows|rules|operations|wire|[\w-]+-(rows|operations))\.ts$/;

const roomOf = ({ path }: Source): string | undefined => {
  const room = /^src\/domain\/[\w-]+\/([\w-]+)\//.exec(path)?.[1];
  return rooms.some((name) => name === room) && !pure.test(path) ? room : undefined;
};

/** A function or method, at the left edge or one or two levels deep: how the rooms are written, and biome lays it out. */
interface Unit {
  name: string;
  from: number;
  to: number;
  text: string;
}

const header =
  /^((?: {2}| {4})?)(?:export )?(?:(?:async )?function |const )?(?:async )?(\w+)(?:<[^\n]*?>)?(?=\(|: |(?:: [^=\n]+)? = )/gm;
const words = new Set([
  "if",
  "for",
  "while",
  "switch",
  "return",
  "catch",
  "await",
  "throw",
  "import",
  "interface",
]);

function closing(code: string, open: number): number {
  let depth = 0;
  for (let at = open; at < code.length; at++) {
    if (code[at] === "(") depth++;
    if (code[at] === ")" && --depth === 0) return at;
  }
  return code.length;
}

/** Whether a function begins here: parameters, then a body or an arrow. */
function begins(code: string, at: number): boolean {
  const rest = /^(?:: [^=\n]+? = |: | = )?(?:async )?/.exec(code.slice(at, at + 200))![0];
  const open = at + rest.length;
  if (code[open] !== "(") return /^\w+ =>/.test(code.slice(open, open + 80));
  const behind = code.slice(closing(code, open) + 1);
  return /^(?:: [^\n;]+?)? (?:=>|\{)/.test(behind);
}

function unitsOf(code: string): Unit[] {
  return [...code.matchAll(header)].flatMap((match) => {
    const [all, indent = "", name = ""] = match;
    if (words.has(name) || !begins(code, match.index + all.length)) return [];
    // To the next line that is no deeper and closes nothing.
    const next = new RegExp(`\\n {0,${indent.length}}(?=[^\\s)}\\]])`, "g");
    next.lastIndex = match.index + all.length;
    const to = next.exec(code)?.index ?? code.length;
    return { name, from: match.index, to, text: code.slice(match.index, to) };
  });
}

/** `changes.write` of policies checks and stores a draft in one transaction. */
const write = /\b(?:store|changes)\s*\.write\(/;
const poolRead = /(?:\b[\w.]+\(\s*store\b)|(?:\bstore\s*\.(?:one|all)\b)/g;
const callOf = (names: Iterable<string>, before = "(?<![\\w.])") =>
  new RegExp(`${before}(?:${[...names, "(?!)"].join("|")})\\(`, "g");

/** Names of the units that are so themselves, or call one that is. */
function spread(units: readonly Unit[], isSo: (unit: Unit) => boolean): Set<string> {
  const names = new Set(units.filter(isSo).map((unit) => unit.name));
  for (let before = -1; before < names.size; ) {
    before = names.size;
    for (const { name, text } of units)
      if (callOf(names).test(text.slice(text.indexOf("(")))) names.add(name);
  }
  return names;
}

export interface HintRead {
  path: string;
  line: number;
  /** `users.update: get`. */
  name: string;
}

/** Every read of the pool before the write of the same function. */
export function readsBeforeWrites(sources: Source[]): HintRead[] {
  const files = sources.flatMap((source) => {
    const room = roomOf(source);
    if (room === undefined) return [];
    const code = codeOf(source.text);
    const units = unitsOf(code);
    // Of units that hold others, such as the one that opens the room, nothing is said by what the others do.
    const leaves = units.filter(
      (one) => !units.some((two) => two !== one && two.from >= one.from && two.to <= one.to),
    );
    const writers = spread(leaves, ({ text }) => write.test(text));
    return { source, room, code, leaves, writers };
  });
  const readersOf = (file: (typeof files)[number], elsewhere: RegExp) =>
    [
      ...spread(file.leaves, ({ text }) => text.match(poolRead) !== null || text.match(elsewhere) !== null),
    ].filter((name) => !file.writers.has(name));
  const known = new Map<string, string[]>();
  for (const file of files)
    known.set(file.room, [...(known.get(file.room) ?? []), ...readersOf(file, /(?!)/)]);
  // A service has the name of its room wherever it is handed in.
  const elsewhere = callOf(
    [...known].flatMap(([room, names]) => names.map((name) => `${room}\\.${name}`)),
    "\\b",
  );

  return files.flatMap((file) => {
    const { source, room, code, leaves, writers } = file;
    const patterns = [poolRead, callOf(readersOf(file, elsewhere)), elsewhere];
    return leaves.flatMap((unit) => {
      const body = unit.text.indexOf("(") + 1;
      const writes = [write, callOf([...writers].filter((name) => name !== unit.name))].map((one) =>
        unit.text.slice(body).search(one),
      );
      const first = Math.min(...writes.filter((at) => at >= 0));
      if (!Number.isFinite(first)) return [];
      const before = unit.text.slice(body, body + first);
      return patterns.flatMap((pattern) =>
        [...before.matchAll(pattern)].map((match) => ({
          path: source.path,
          line: lineAt(code, unit.from + body + match.index),
          name: `${room}.${unit.name}: ${match[0].replace(/\(.*$/s, "")}`,
        })),
      );
    });
  });
}

/** Reads before a write that decide nothing, and why. Nothing comes to this list; what is mended leaves it, else a test fails. */
export const hints: Readonly<Record<string, string>> = {
  "tenancy.createDefaults: rows.environmentById": "saves a write: the inserts leave alone what is there",
  "keyring.findMaster: rows.allRows":
    "says whether a key must be given: the insert leaves alone what is there",
  "users.changePassword: rows.userById":
    "hashing takes a tenth of a second: under the lock of the user it must still be the hash that was compared",
  "sessions.loginByLink: users.find":
    "says which hash the account had: under the lock of the user it must still be that one",
};

/** Those of the list that no source needs any more. */
export function idleHints(sources: Source[], list: Readonly<Record<string, string>>): string[] {
  const needed = new Set(readsBeforeWrites(sources).map(({ name }) => name));
  return Object.keys(list).filter((name) => !needed.has(name));
}

/**
 * What is read from the pool may be old when it is written: a right that was taken away meanwhile would come back. So a
 * change reads inside its write, under the lock of the row; what it reads before is a hint, and stands in a list.
 */
export const staleReadBreaches =
  (hints: Readonly<Record<string, string>>): Rule =>
  (sources) =>
    readsBeforeWrites(sources)
      .filter(({ name }) => !Object.hasOwn(hints, name))
      .map(({ path, line, name }) => `${path}:${line}: read outside the write that follows: ${name}`);

/** A service that reads, and then writes what it has read; the read stands in the fourth line after those of `helper`. */
const careless = (read: string, helper = "") => `export function openIt({ store }) {
  ${helper}return {
    async update(id, name) {
      const before = await ${read};
      await store.write((session) => rows.update(session, { ...before, name }));
    },
  };
}`;

/** The law with made-up sources that break it, and with such that keep it. */
export const staleReads: Law = {
  name: "what is changed of rights is read inside the write, under the lock of its row",
  rule: staleReadBreaches(hints),
  bad: [
    ["src/domain/access/users/service.ts", careless("rows.userById(store, id)"), 4],
    [
      "src/domain/access/keys/manage.ts",
      careless("find(id)", "const find = (id) => rows.keyById(store, id);\n  "),
      5,
    ],
    ["src/domain/access/roles/service.ts", careless("store.one(roleOf(id))"), 4],
    [
      "src/domain/access/tenancy/orgs.ts",
      careless("deep(id)", "const deep = (id) =>\n    find(id);\n  const find = (id) => store.one(q);\n  "),
      7,
    ],
    [
      "src/domain/access/platform/service.ts",
      `export function openIt({ store }) {
  async function change(work) {
    await store.write(work);
  }
  return {
    async update(id, name) {
      const before = await rows.userById(store, id);
      await change((session) => rows.update(session, { ...before, name }));
    },
  };
}`,
      7,
    ],
  ],
  good: [
    ["src/domain/engine/runs/service.ts", careless("rows.userById(store, id)")],
    ["src/domain/access/users/rows.ts", careless("rows.userById(store, id)")],
    ["src/domain/access/users/service.ts", careless("hashPassword(name)")],
    [
      "src/domain/access/users/service.ts",
      `export function openIt({ store }) {
  return {
    async update(id, name) {
      await store.write(async (session) => {
        const before = await rows.holdUser(session, id);
        await rows.update(session, { ...before, name });
      });
      return rows.userById(store, id);
    },
    find: (id) => rows.userById(store, id),
  };
}`,
    ],
  ],
};
