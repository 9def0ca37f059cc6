import { mkdtempSync, rmSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { version } from "../kit/version.ts";

const root = join(import.meta.dir, "../..");

async function bun(folder: string, ...args: readonly string[]): Promise<void> {
  const child = Bun.spawn([process.execPath, ...args], { cwd: folder, stdout: "ignore", stderr: "pipe" });
  const said = await new Response(child.stderr).text();
  if ((await child.exited) !== 0) throw new Error(`bun ${args.join(" ")}: ${said}`);
}

/** The SDK as a package to install, made of the tree. The executable has one inside (build/binary.ts). */
export async function sdkPackage(): Promise<Uint8Array> {
  const folder = mkdtempSync(join(tmpdir(), "svc-sdk-"));
  try {
    await bun(root, "run", "src/build/sdk.ts", folder);
    await bun(folder, "pm", "pack", "--ignore-scripts");
    return await readFile(join(folder, `svc-${version}.tgz`));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
