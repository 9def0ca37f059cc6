import { mkdtemp, readFile } from "node:fs/promises";
import { availableParallelism, tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { findChrome } from "./chrome.ts";
import { haproxy } from "./haproxy.ts";
import { findGo, goLibraries, requireGoLibrary } from "./helm.ts";
import { verdict } from "./junit.ts";
import { type LaneOptions, type LaneRun, OpenLane } from "./lane-run.ts";
import { deal, lanes, type Share } from "./lanes.ts";
import { findNats } from "./nats.ts";
import { isNight, waitsForNight } from "./night.ts";
import { findInitdb } from "./postgres.ts";
import { executableVariable, findProgram, removeFolder } from "./process.ts";
import { promtool } from "./promtool.ts";
import { batchesOf, schedule, type Times } from "./schedule.ts";
import { sinceOf, touchedSince } from "./since.ts";
import { keepTimes } from "./times.ts";

// The whole of what a change is judged by: format, types and every test, against servers that this run starts.
// Nothing here imports a package, because this also installs them.

const root = resolve(import.meta.dir, "../..");

async function step(command: string[], environment: Record<string, string> = {}): Promise<number> {
  const child = Bun.spawn(command, {
    cwd: root,
    env: { ...process.env, ...environment },
    stdio: ["ignore", "inherit", "inherit"],
  });
  return child.exited;
}

interface Needed {
  /** Throws where it is missing. */
  find(): unknown;
  debianPackage: string;
  /** Instead of the package's installation. */
  fetch?(): Promise<void>;
}

const programs: readonly Needed[] = [
  { find: findInitdb, debianPackage: "postgresql-15" },
  { find: findNats, debianPackage: "nats-server" },
  { find: findChrome, debianPackage: "chromium-headless-shell" },
  // Those Debian's base and PostgreSQL bring along on most machines.
  ...[
    ["openssl", "openssl"],
    ["mkfs.ext4", "e2fsprogs"],
    ["ip", "iproute2"],
  ].map(([name, debianPackage]) => ({
    find: () => findProgram([name!], debianPackage!),
    debianPackage: debianPackage!,
  })),
];

/** What no user of svc needs. */
const programsOfNight: readonly Needed[] = [
  { find: findGo, debianPackage: "golang-go" },
  ...goLibraries.map((debianPackage) => ({ find: () => requireGoLibrary(debianPackage), debianPackage })),
  promtool,
  haproxy,
];

function missing(): (Needed & { why: string })[] {
  return [...programs, ...(isNight ? programsOfNight : [])].flatMap((needed) => {
    try {
      needed.find();
      return [];
    } catch (error) {
      return [{ ...needed, why: error instanceof Error ? error.message : String(error) }];
    }
  });
}

/** Root on a Debian machine gets what is missing; anyone else is told. */
async function provide(): Promise<void> {
  const needed = missing();
  if (needed.length === 0) return;
  if (process.getuid?.() === 0 && Bun.which("apt-get")) {
    const quiet = { DEBIAN_FRONTEND: "noninteractive" };
    await step(["apt-get", "update", "-q"], quiet);
    const packages = needed.flatMap(({ fetch, debianPackage }) => (fetch ? [] : [debianPackage]));
    await step(["apt-get", "install", "-y", "-q", "--no-install-recommends", ...packages], quiet);
    for (const { fetch } of needed) await fetch?.();
  }
  const left = missing();
  if (left.length > 0) throw new Error(left.map(({ why }) => why).join("\n"));
}

const slowestTold = 20;
/** Where the time went, so that nobody has to guess. */
function tellTimes(done: readonly LaneRun[]): void {
  const files = done.flatMap(({ times }) => Object.entries(times));
  console.log(`\nthe ${slowestTold} slowest files: seconds, and of a core`);
  for (const [key, [seconds, computed]] of files
    .sort((one, other) => other[1][0] - one[1][0])
    .slice(0, slowestTold))
    console.log(`${seconds.toFixed(1).padStart(7)} ${computed.toFixed(1).padStart(7)}  ${key}`);
  console.log("\nthe lanes: seconds one after the other, and of a core by the tests and by their PostgreSQL");
  for (const { lane, runs, seconds, computedSeconds, storedSeconds } of done) {
    const figures = [seconds, computedSeconds, storedSeconds].map((one) => one.toFixed(1).padStart(8));
    console.log(`${figures.join("")}  ${lane.name.padEnd(8)}  ${runs.length} processes`);
  }
}

/** By day nodes are the executable; at night they run the sources. */
async function buildServer(folder: string): Promise<void> {
  const executable = join(folder, "svc");
  const built = await step([process.execPath, join(root, "src/build/binary.ts"), executable]);
  if (built !== 0) throw new Error("bun run build:binary failed");
  process.env[executableVariable] = executable;
}

/** Runs what is dealt: beside each other as the processors allow, then what is alone. */
async function runShares(shares: readonly Share[], options: LaneOptions): Promise<LaneRun[]> {
  const open = new Map(lanes.map((lane) => [lane.name, new OpenLane(lane, options)]));
  const alone = new Set(lanes.filter(({ isAlone }) => isAlone).map(({ name }) => name));
  try {
    await schedule(batchesOf(shares), {
      cores: availableParallelism(),
      run: (batch) => open.get(batch.lane)!.run(batch),
      isAlone: ({ lane }) => alone.has(lane),
    });
  } finally {
    await Promise.all(Array.from(open.values(), (lane) => lane.close()));
  }
  return Array.from(open.values(), ({ done }) => done);
}

async function runAll(extra: string[]): Promise<boolean> {
  const startedAt = performance.now();
  await provide();
  const installed = await step([process.execPath, "install", "--frozen-lockfile"]);
  if (installed !== 0) throw new Error("bun install --frozen-lockfile failed");
  const folder = await mkdtemp(join(tmpdir(), "svc-test-"));
  // Each keeps one core busy.
  const [checkExit] = await Promise.all([
    step([process.execPath, "run", "check"]),
    isNight ? undefined : buildServer(folder),
  ]);
  const checkedSeconds = (performance.now() - startedAt) / 1_000;

  const paths = [...new Bun.Glob("test/**/*.test.{ts,tsx}").scanSync({ cwd: root })]
    .filter((path) => !path.startsWith("test/bench/"))
    .sort();
  const files = await Promise.all(
    paths.map(async (path) => ({ path, text: await readFile(join(root, path), "utf8") })),
  );
  const { shares, wrong } = deal(files);
  const { since, rest } = sinceOf(extra);
  const touched = since === undefined ? undefined : touchedSince(root, since, paths);
  const wanted = shares.filter(
    (share) => (isNight || !waitsForNight(share)) && (touched?.has(share.file) ?? true),
  );
  // A screenshot of each look of each page takes minutes, and nobody looks at those of a machine that is thrown away.
  if (!process.env.CI) process.env.DASHBOARD_SHOTS ??= await mkdtemp(join(tmpdir(), "svc-shots-"));
  const done = await runShares(wanted, { root, folder, extra: rest }).finally(() => removeFolder(folder));
  const times: Times = Object.assign({}, ...done.map((lane) => lane.times));
  await keepTimes(root, times);

  const runs = done.flatMap((lane) => lane.runs);
  const { passed, failed, skipped, failures, beside } = verdict({ runs, wrong, checkExit });
  tellTimes(done);
  const seconds = (performance.now() - startedAt) / 1_000;
  console.log(
    `\n${seconds.toFixed(0)} s, of which ${checkedSeconds.toFixed(0)} installed and checked; retried: none`,
  );
  if (!isNight)
    console.log(`${shares.length - wanted.length} of ${shares.length} files or halves were left out`);
  for (const { title, reason } of failures) console.log(`failed: ${title}\n${reason}\n`);
  for (const sentence of beside) console.log(`failed: ${sentence}`);
  const { DASHBOARD_SHOTS: shots } = process.env;
  if (shots !== undefined) console.log(`screenshots of the dashboard: ${shots}`);
  if (skipped > 0) console.log(`${skipped} skipped`);
  console.log(`${passed} passed, ${failed} failed`);
  return failed === 0;
}

try {
  process.exitCode = (await runAll(process.argv.slice(2))) ? 0 : 1;
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  console.log("0 passed, 1 failed");
  process.exitCode = 1;
}
