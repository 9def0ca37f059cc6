import { existsSync } from "node:fs";
import { mkdtemp, readFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { findChrome } from "./chrome.ts";
import { verdict } from "./junit.ts";
import { findNats, startNats } from "./nats.ts";
import { findInitdb, startPostgres } from "./postgres.ts";
import { findProgram, removeFolder } from "./process.ts";

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

const programs = [
  { find: findInitdb, debianPackage: "postgresql-15" },
  { find: findNats, debianPackage: "nats-server" },
  { find: findChrome, debianPackage: "chromium" },
  ...[
    ["openssl", "openssl"],
    ["mkfs.ext4", "e2fsprogs"],
    ["ip", "iproute2"],
  ].map(([name, debianPackage]) => ({
    find: () => findProgram([name!], debianPackage!),
    debianPackage: debianPackage!,
  })),
];

function missing(): { debianPackage: string; why: string }[] {
  return programs.flatMap(({ find, debianPackage }) => {
    try {
      find();
      return [];
    } catch (error) {
      return [{ debianPackage, why: error instanceof Error ? error.message : String(error) }];
    }
  });
}

/** Root on a Debian machine gets what is missing; anyone else is told. */
async function provide(): Promise<void> {
  const packages = missing().map(({ debianPackage }) => debianPackage);
  if (packages.length === 0) return;
  if (process.getuid?.() === 0 && Bun.which("apt-get")) {
    const quiet = { DEBIAN_FRONTEND: "noninteractive" };
    await step(["apt-get", "update", "-q"], quiet);
    await step(["apt-get", "install", "-y", "-q", "--no-install-recommends", ...packages], quiet);
  }
  const left = missing();
  if (left.length > 0) throw new Error(left.map(({ why }) => why).join("\n"));
}

async function runAll(extra: string[]): Promise<boolean> {
  await provide();
  const installed = await step([process.execPath, "install", "--frozen-lockfile"]);
  if (installed !== 0) throw new Error("bun install --frozen-lockfile failed");
  const checkExit = await step([process.execPath, "run", "check"]);

  const testFiles = [...new Bun.Glob("test/**/*.test.{ts,tsx}").scanSync({ cwd: root })]
    .filter((path) => !path.startsWith("test/bench/"))
    .sort();
  const folder = await mkdtemp(join(tmpdir(), "svc-test-"));
  const report = join(folder, "junit.xml");
  const [postgres, nats] = await Promise.all([startPostgres(), startNats()]);
  let testsExit = 1;
  let xml = "";
  try {
    testsExit = await step(
      [
        process.execPath,
        "test",
        // Of tests and hooks that set none: what a loaded machine may need to make a database.
        "--timeout=30000",
        "--reporter=junit",
        `--reporter-outfile=${report}`,
        ...extra,
        ...testFiles.map((path) => `./${path}`),
      ],
      { SVC_TEST_POSTGRES_URL: postgres.url, SVC_TEST_NATS_URL: nats.url },
    );
    if (existsSync(report)) xml = await readFile(report, "utf8");
  } finally {
    await Promise.all([postgres.stop(), nats.stop(), removeFolder(folder)]);
  }

  const { passed, failed, skipped, beside } = verdict({ xml, testFiles, testsExit, checkExit });
  console.log("");
  for (const sentence of beside) console.log(`failed: ${sentence}`);
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
