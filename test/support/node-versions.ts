import { existsSync } from "node:fs";
import { mkdir, mkdtemp, rename } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { findProgram, removeFolder, run } from "./process.ts";

/** Every line of Node that the SDK promises to run on, by its newest release as a package of npm. */
const releases = { 20: "20.20.2", 22: "22.23.3", 24: "24.21.0" } as const;

export const nodeMajors = Object.keys(releases).map(Number) as readonly (keyof typeof releases)[];

const packageName = `node-${process.platform}-${process.arch}`;
/** What tests fetch once a machine. */
export const testCache = join(homedir(), ".cache/svc-tests");

async function installed(major: number): Promise<string | undefined> {
  const node = Bun.which("node");
  return node !== null && (await run([node, "--version"])).startsWith(`v${major}.`) ? node : undefined;
}

/** The machine's own Node where it is of that line; otherwise the registry's, which is fetched once a machine. */
export async function nodeProgram(major: keyof typeof releases): Promise<string> {
  const own = await installed(major);
  if (own !== undefined) return own;
  const folder = join(testCache, `node-${releases[major]}`);
  const program = join(folder, "node_modules", packageName, "bin/node");
  if (existsSync(program)) return program;
  await mkdir(testCache, { recursive: true });
  const beginning = await mkdtemp(`${folder}-`);
  try {
    const flags = ["--prefix", beginning, "--no-save", "--prefer-offline", "--no-audit", "--no-fund"];
    await run([findProgram(["npm"], "npm"), "install", ...flags, `${packageName}@${releases[major]}`]);
    // Another test that fetched it meanwhile has put its own in place.
    await rename(beginning, folder).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== "ENOTEMPTY" && error.code !== "EEXIST") throw error;
    });
  } finally {
    await removeFolder(beginning);
  }
  return program;
}
