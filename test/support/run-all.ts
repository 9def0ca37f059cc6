import { mkdtemp, readFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { findChrome } from "./chrome.ts";
import { findGo, goLibraries, requireGoLibrary } from "./helm.ts";
import { secondsOf, verdict } from "./junit.ts";
import { type LaneRun, runLane } from "./lane-run.ts";
import { deal, lanes } from "./lanes.ts";
import { findNats } from "./nats.ts";
import { findInitdb } from "./postgres.ts";
import { findProgram, removeFolder } from "./process.ts";
import { promtool } from "./promtool.ts";

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
  { find: findChrome, debianPackage: "chromium" },
  { find: findGo, debianPackage: "golang-go" },
  ...goLibraries.map((debianPackage) => ({ find: () => requireGoLibrary(debianPackage), debianPackage })),
  ...[
    ["openssl", "openssl"],
    ["mkfs.ext4", "e2fsprogs"],
    ["ip", "iproute2"],
  ].map(([name, debianPackage]) => ({
    find: () => findProgram([name!], debianPackage!),
    debianPackage: debianPackage!,
  })),
  promtool,
];

function missing(): (Needed & { why: string })[] {
  return programs.flatMap((needed) => {
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
  const files = done.flatMap(({ lane, runs }) =>
    runs.flatMap(({ xml }) => [...secondsOf(xml)].map(([file, seconds]) => ({ lane, file, seconds }))),
  );
  console.log(`\nthe ${slowestTold} slowest files`);
  for (const { lane, file, seconds } of files
    .sort((one, other) => other.seconds - one.seconds)
    .slice(0, slowestTold))
    console.log(`${seconds.toFixed(1).padStart(7)} s  ${lane.name.padEnd(8)}  ${file}`);
  console.log("\nthe lanes");
  for (const { lane, runs, seconds, computedSeconds } of done)
    console.log(
      `${seconds.toFixed(1).padStart(7)} s  ${lane.name.padEnd(8)}  ${runs.length} processes, ${lane.width} at once, which computed ${computedSeconds.toFixed(1)} s`,
    );
}

async function runAll(extra: string[]): Promise<boolean> {
  await provide();
  const installed = await step([process.execPath, "install", "--frozen-lockfile"]);
  if (installed !== 0) throw new Error("bun install --frozen-lockfile failed");
  const checkExit = await step([process.execPath, "run", "check"]);

  const paths = [...new Bun.Glob("test/**/*.test.{ts,tsx}").scanSync({ cwd: root })]
    .filter((path) => !path.startsWith("test/bench/"))
    .sort();
  const files = await Promise.all(
    paths.map(async (path) => ({ path, text: await readFile(join(root, path), "utf8") })),
  );
  const { shares, wrong } = deal(files);
  const folder = await mkdtemp(join(tmpdir(), "svc-test-"));
  // A screenshot of each look of each page takes minutes, and nobody looks at those of a machine that is thrown away.
  if (!process.env.CI) process.env.DASHBOARD_SHOTS ??= await mkdtemp(join(tmpdir(), "svc-shots-"));
  const done: LaneRun[] = [];
  try {
    for (const phase of [...new Set(lanes.map((lane) => lane.phase))].sort()) {
      const beside = lanes.filter((lane) => lane.phase === phase);
      done.push(...(await Promise.all(beside.map((lane) => runLane(lane, shares, { root, folder, extra })))));
    }
  } finally {
    await removeFolder(folder);
  }

  const runs = done.flatMap((lane) => lane.runs);
  const { passed, failed, skipped, failures, beside } = verdict({ runs, wrong, checkExit });
  tellTimes(done);
  console.log("");
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
