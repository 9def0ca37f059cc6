import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export const root = join(import.meta.dir, "../..");

export async function bun(folder: string, ...args: readonly string[]): Promise<void> {
  const child = Bun.spawn([process.execPath, ...args], { cwd: folder, stdout: "ignore", stderr: "pipe" });
  const said = await new Response(child.stderr).text();
  if ((await child.exited) !== 0) throw new Error(`bun ${args.join(" ")}: ${said}`);
}

/** Works in a folder that is gone afterwards. */
export async function inFolder<Made>(work: (folder: string) => Promise<Made>): Promise<Made> {
  const folder = mkdtempSync(join(tmpdir(), "svc-made-"));
  try {
    return await work(folder);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
