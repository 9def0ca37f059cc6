import type { EngineName } from "./engines.ts";

// Which test runs where. Lanes run beside each other, so that those who wait leave the processor to those who compute.
// Nothing here imports a package: run-all.ts reads it before any is installed.

export type LaneName = "house" | "postgres" | "cluster" | "fault" | "browser" | "timing";

export interface Lane {
  name: LaneName;
  about: string;
  /** Processes beside each other. */
  width: number;
  /** As many files one process takes at most. */
  filesAProcess: number;
  /** Off where nobody cuts the power and asks what is left. */
  fsync: boolean;
  /** Lanes of one phase run beside each other; a phase begins when the one before is done. */
  phase: number;
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
 * Files with a bound in milliseconds that a loaded machine would break. Those that count lived time alone (support/lived.ts)
 * are not among them: no pause makes them fail.
 */
export const judgedByTime: readonly string[] = [
  "attack/neighbours",
  "attack/races",
  "cluster/recovery",
  "cluster/failover-times",
  "cluster/pages",
  "cluster/stuck",
  "dashboard/load",
  "fault/disk-full-times",
  "operations/authenticate",
  "operations/cel-budgets",
  "operations/hostile-policies",
  "operations/impersonation",
  "operations/nesting",
  "operations/people",
  "operations/platform",
  "operations/policies",
  "operations/push-moves",
  "operations/shares-cron",
  "operations/shares-runs",
  "operations/slow-neighbours",
  "operations/traces",
].map((name) => `test/${name}.test.ts`);

/** What drives Chromium all the time and stands outside dashboard/. */
export const inBrowser: readonly string[] = ["attack/browsers", "cluster/dashboard"].map(
  (name) => `test/${name}.test.ts`,
);

/** Seconds of the files that take long, as they were measured: the longest begin first, and no lane waits for them at its end. */
export const longFiles: Record<string, number> = Object.fromEntries(
  Object.entries({
    "fault/short": 80,
    "cluster/recovery": 55,
    "cluster/standby": 40,
    "fault/disk-full-times": 40,
    "fault/demo": 55,
    "simulate/simulate": 40,
    "fault/readers": 34,
    "cluster/revocations": 32,
    "fault/leader": 27,
    "fault/libsql": 26,
    "cluster/definitions": 25,
    "operations/hot-plans-counted": 30,
    "operations/intruder": 24,
    "operations/hot-plans": 24,
    "operations/hot-plans-held": 20,
    "fault/partition": 22,
    "cluster/mirror": 20,
    "operations/cli-tail": 19,
    "operations/shares-upkeep": 18,
    "cluster/outbox": 18,
    "cluster/groups": 18,
    "attack/browsers": 17,
    "operations/backup": 16,
    "operations/integrity-plans": 15,
    "cluster/dashboard": 18,
    "dashboard/looks": 95,
    "dashboard/intruder": 80,
    "dashboard/pages": 70,
    "dashboard/actions-connections": 50,
    "dashboard/actions-data": 45,
    "dashboard/actions-runs": 30,
    "dashboard/actions-functions": 30,
    "dashboard/actions-access": 25,
    "dashboard/actions-platform": 25,
    "dashboard/operating": 30,
    "dashboard/data": 30,
    "dashboard/hostile": 30,
    "dashboard/shell": 25,
    "fault/deaf-stop": 15,
    "attack/doors": 14,
    "operations/sdk-stream": 13,
    "operations/integrity": 12,
    "operations/sdk-subscribe": 11,
    "operations/carried-roles": 11,
    "cluster/frozen-worker": 11,
    "contract/clients": 9,
  }).map(([name, seconds]) => [`test/${name}.test.ts`, seconds]),
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
    ...{ width: 2, filesAProcess: 8, fsync: true, phase: 1, halves: ["libsql"] },
    takes: (file) =>
      isPlaced(file) &&
      !whole(file) &&
      (file.path === "test/tidy.test.ts" ||
        within("unit", "contract", "conformance", "simulate", "operations")(file)),
  },
  {
    name: "postgres",
    about: "operations on PostgreSQL, those that ask both engines at once, and the attacks",
    ...{ width: 1, filesAProcess: 8, fsync: false, phase: 1, halves: ["postgres"] },
    takes: (file) => isPlaced(file) && (halved(file) || whole(file) || within("attack")(file)),
  },
  {
    name: "cluster",
    about: "several nodes",
    ...{ width: 1, filesAProcess: 1, fsync: false, phase: 2 },
    takes: (file) => isPlaced(file) && within("cluster")(file),
  },
  {
    name: "fault",
    about: "what breaks under load",
    ...{ width: 1, filesAProcess: 1, fsync: true, phase: 2 },
    takes: (file) => isPlaced(file) && within("fault")(file),
  },
  {
    name: "browser",
    about: "what people see: as many browsers as there are cores, and nothing beside them",
    ...{ width: 2, filesAProcess: 1, fsync: false, phase: 3, halves: ["libsql", "postgres"] },
    takes: (file) => !isJudgedByTime(file) && isForBrowser(file),
  },
  {
    name: "timing",
    about: "bounds in milliseconds, alone and one at a time",
    ...{ width: 1, filesAProcess: 1, fsync: true, phase: 4 },
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

/** What one process runs: files of one lane with the same engines. */
export interface Batch {
  lane: LaneName;
  engine: EngineName | undefined;
  files: string[];
}

const weightOf = (file: string) => longFiles[file] ?? 1;

/** The longest first; a long file has a process of its own. */
export function batchesOf(lane: Lane, shares: readonly Share[]): Batch[] {
  const own = shares.filter((share) => share.lane === lane.name);
  const batches: Batch[] = [];
  for (const engine of [undefined, "libsql", "postgres"] as const) {
    const files = own.filter((share) => share.engine === engine).map(({ file }) => file);
    const long = files.filter((file) => longFiles[file] !== undefined);
    const short = files.filter((file) => longFiles[file] === undefined);
    for (const file of long) batches.push({ lane: lane.name, engine, files: [file] });
    for (let from = 0; from < short.length; from += lane.filesAProcess)
      batches.push({ lane: lane.name, engine, files: short.slice(from, from + lane.filesAProcess) });
  }
  const weight = ({ files }: Batch) => files.reduce((sum, file) => sum + weightOf(file), 0);
  const longest = ({ files }: Batch) => Math.max(...files.map(weightOf));
  return batches.sort((one, other) => longest(other) - longest(one) || weight(other) - weight(one));
}
