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

/** The folder of a package of npm, which is fetched once a machine. */
export async function fetchedPackage(name: string, version: string): Promise<string> {
  const folder = join(testCache, `${name.replaceAll(/[^a-z0-9]+/g, "-").replace(/^-/, "")}-${version}`);
  const found = join(folder, "node_modules", name);
  if (existsSync(found)) return found;
  await mkdir(testCache, { recursive: true });
  const beginning = await mkdtemp(`${folder}-`);
  try {
    const flags = ["--prefix", beginning, "--no-save", "--prefer-offline", "--no-audit", "--no-fund"];
    await run([findProgram(["npm"], "npm"), "install", ...flags, `${name}@${version}`]);
    // Another test that fetched it meanwhile has put its own in place.
    await rename(beginning, folder).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== "ENOTEMPTY" && error.code !== "EEXIST") throw error;
    });
  } finally {
    await removeFolder(beginning);
  }
  return found;
}

/** The machine's own Node where it is of that line; otherwise the registry's. */
export const nodeProgram = async (major: keyof typeof releases): Promise<string> =>
  (await installed(major)) ?? join(await fetchedPackage(packageName, releases[major]), "bin/node");
