import { mkdir, mkdtemp, rename } from "node:fs/promises";
import { join } from "node:path";
import { testCache } from "./node-versions.ts";
import { findProgram, removeFolder, run } from "./process.ts";

const debianPackage = "prometheus";
const unpacked = join(testCache, "promtool");

export const findPromtool = (): string => findProgram(["promtool", unpacked], debianPackage);

/** Taken out of its package, which would start Prometheus where it is installed. */
async function fetchPromtool(): Promise<void> {
  await mkdir(testCache, { recursive: true });
  const folder = await mkdtemp(`${unpacked}-`);
  try {
    const take = `cd "$1" && apt-get download -q ${debianPackage} && dpkg -x ${debianPackage}_*.deb .`;
    await run(["sh", "-c", take, "sh", folder]);
    await rename(join(folder, "usr/bin/promtool"), unpacked);
  } finally {
    await removeFolder(folder);
  }
}

/** For those that test:all finds missing. */
export const promtool = { find: findPromtool, debianPackage, fetch: fetchPromtool };
