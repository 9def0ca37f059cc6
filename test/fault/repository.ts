import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { removeFolder, run } from "../support/process.ts";

/** A git repository whose commits no other has. */
export async function makeRepository(name: string, commits: number) {
  const folder = await mkdtemp(join(tmpdir(), "svc-repository-"));
  await run(["git", "init", "-q", "-b", "main", folder]);
  const words = ["Fix", "Add", "Remove", "Speed up", "Document"];
  const stream = Array.from({ length: commits }, (_, place) => {
    const message = `${words[place % words.length]} part ${place} of ${name}`;
    const text = `${place}\n`;
    return [
      "commit refs/heads/main",
      `committer Someone <someone@example.org> ${1_700_000_000 + place} +0000`,
      `data ${message.length}`,
      message,
      `M 100644 inline file-${place % 50}.txt`,
      `data ${text.length}`,
      text,
    ].join("\n");
  }).join("\n");
  const child = Bun.spawn(["git", "-C", folder, "fast-import", "--quiet"], {
    stdin: new Blob([`${stream}\n`]),
  });
  if ((await child.exited) !== 0) throw new Error("git fast-import failed");
  return { folder, remove: () => removeFolder(folder) };
}
