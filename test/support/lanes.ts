import type { EngineName } from "./engines.ts";

// Which test runs in which lane, with which PostgreSQL. When it runs: schedule.ts. Whether it waits for the night: night.ts.
// Nothing here imports a package: run-all.ts reads it before any is installed.

export type LaneName = "house" | "postgres" | "cluster" | "fault" | "browser" | "timing";

export interface Lane {
  name: LaneName;
  about: string;
  /** Off where no test cuts the power and asks what is left. */
  fsync: boolean;
  /** One file at a time, after all others: nothing computes beside it. */
  isAlone?: boolean;
  /** Which halves of a halved file it runs, a share each. */
  halves?: readonly EngineName[];
  takes(file: TestFile): boolean;
}

export interface TestFile {
  /** From the root of the repository. */
  path: string;
  text: string;
}

/** A file, or its half for one engine, in one lane. */
export interface Share {
  file: string;
  lane: LaneName;
  /** Both where there is none. */
  engine?: EngineName;
}

/**
 * Files with a bound in milliseconds that a loaded machine would break. Those that count lived time (support/lived.ts), what a
 * thread computed (support/held.ts) or what is asked after the bound (support/within.ts) are not among them.
 */
export const judgedByTime: readonly string[] = [
  "attack/neighbours",
  "attack/races",
  "cluster/recovery",
  "cluster/pages",
  "cluster/stuck",
  "dashboard/load",
  "operations/dear-searches",
  "operations/hostile-policies",
  "operations/nesting",
  "operations/shares-cron",
  "operations/sql-seats",
].map((name) => `test/${name}.test.ts`);

/** What drives Chromium all the time and stands outside dashboard/. */
export const inBrowser: readonly string[] = ["attack/browsers", "cluster/dashboard"].map(
  (name) => `test/${name}.test.ts`,
);

const within = (...folders: string[]) => {
  const starts = folders.map((folder) => `test/${folder}/`);
  return ({ path }: TestFile) => starts.some((start) => path.startsWith(start));
};

const isJudgedByTime = ({ path }: TestFile) => judgedByTime.includes(path);

/** Whether the filter of engines says anything to it. */
const knowsEngines = ({ text }: TestFile) => /\bengines\b/.test(text);

/** All that it holds stands under `describe.each(engines)`: each engine's half runs in a lane of its own. */
function isHalved({ text }: TestFile): boolean {
  const outermost = text.split("\n").filter((line) => /^(describe|test|for)\b/.test(line));
  return outermost.length > 0 && outermost.every((line) => /^(describe|test)\.each\(engines\)/.test(line));
}

const isForBrowser = (file: TestFile) => within("dashboard")(file) || inBrowser.includes(file.path);
const halved = (file: TestFile) => within("operations", "contract", "dashboard")(file) && isHalved(file);
/** What asks both engines in one test, or beside tests that ask none. */
const whole = (file: TestFile) => within("operations")(file) && knowsEngines(file) && !isHalved(file);

/** Which files are dealt by their folder. */
const isPlaced = (file: TestFile) => !isJudgedByTime(file) && !isForBrowser(file);

export const lanes: readonly Lane[] = [
  {
    name: "house",
    about: "unit, contract, conformance, simulate, tidy; operations on libSQL",
    fsync: true,
    halves: ["libsql"],
    takes: (file) =>
      isPlaced(file) &&
      !whole(file) &&
      (file.path === "test/tidy.test.ts" ||
        within("unit", "contract", "conformance", "simulate", "operations")(file)),
  },
  {
    name: "postgres",
    about: "operations on PostgreSQL, those that ask both engines at once, and the attacks",
    fsync: false,
    halves: ["postgres"],
    takes: (file) => isPlaced(file) && (halved(file) || whole(file) || within("attack")(file)),
  },
  {
    name: "cluster",
    about: "several nodes",
    fsync: false,
    takes: (file) => isPlaced(file) && within("cluster")(file),
  },
  {
    name: "fault",
    about: "what breaks under load",
    fsync: true,
    takes: (file) => isPlaced(file) && within("fault")(file),
  },
  {
    name: "browser",
    about: "what people see",
    fsync: false,
    halves: ["libsql", "postgres"],
    takes: (file) => !isJudgedByTime(file) && isForBrowser(file),
  },
  {
    name: "timing",
    about: "bounds in milliseconds, alone and one at a time",
    fsync: true,
    isAlone: true,
    takes: isJudgedByTime,
  },
];

/** Where each file runs, and a sentence for each that runs nowhere or twice. */
export function deal(
  files: readonly TestFile[],
  among: readonly Lane[] = lanes,
): { shares: Share[]; wrong: string[] } {
  const shares: Share[] = [];
  const wrong: string[] = [];
  for (const file of files) {
    const taking = among.filter((lane) => lane.takes(file));
    const halves = halved(file) ? taking.flatMap((lane) => lane.halves ?? []) : [];
    const isBoth = halves.length === 2 && new Set(halves).size === 2;
    if (taking.length === 0) wrong.push(`${file.path} is in no lane`);
    else if (taking.length > 1 && !(isBoth && taking.length === 2))
      wrong.push(`${file.path} is in ${taking.map(({ name }) => name).join(" and ")}`);
    else
      for (const lane of taking)
        for (const engine of isBoth ? lane.halves! : [undefined])
          shares.push({ file: file.path, lane: lane.name, ...(engine && { engine }) });
  }
  return { shares, wrong };
}
