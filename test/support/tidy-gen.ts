import { mkdtemp, rm, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

const root = resolve(import.meta.dir, "../..");

/**
 * Writes the code of `proto/` to `src/gen` below the folder `into`. The plugin is started by the Bun that runs this,
 * whatever the machine has on its PATH; nothing is fetched.
 */
export async function generate(into: string): Promise<void> {
  const bin = await mkdtemp(join(tmpdir(), "svc-generate-"));
  try {
    await symlink(process.execPath, join(bin, "bun"));
    const child = Bun.spawn(
      [
        join(root, "node_modules/.bin/buf"),
        "generate",
        "proto",
        "--template",
        "proto/buf.gen.yaml",
        "-o",
        into,
      ],
      { cwd: root, env: { ...process.env, PATH: `${bin}:${process.env.PATH ?? ""}` }, stderr: "pipe" },
    );
    const errors = await new Response(child.stderr).text();
    if ((await child.exited) !== 0) throw new Error(`buf generate failed:\n${errors}`);
  } finally {
    await rm(bin, { recursive: true, force: true });
  }
}

if (import.meta.main) await generate(root);
