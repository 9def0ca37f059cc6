import { execFileSync } from "node:child_process";
import type { Commit } from "./classify.ts";

const pathsMax = 20;
const recordMark = "\x1e";
const fieldMark = "\x1f";
const outputBytesMax = 256 * 1024 * 1024;

/** The newest `limit` commits of a repository, oldest first. Throws when there is no git or no repository. */
export function readHistory(folder: string, limit: number): Commit[] {
  const format = `--pretty=format:${recordMark}%H${fieldMark}%an${fieldMark}%aI${fieldMark}%s`;
  const text = execFileSync("git", ["-C", folder, "log", "--numstat", "-n", String(limit), format], {
    encoding: "utf8",
    maxBuffer: outputBytesMax,
    stdio: ["ignore", "pipe", "pipe"],
  });
  return text.split(recordMark).slice(1).map(readCommit).reverse();
}

function readCommit(record: string): Commit {
  const [head = "", ...lines] = record.split("\n");
  const [hash = "", author = "", date = "", subject = ""] = head.split(fieldMark);
  const files = lines.flatMap((line) => {
    const [added, removed, path] = line.split("\t");
    // Binary files count as "-".
    return path === undefined ? [] : [{ path, added: Number(added) || 0, removed: Number(removed) || 0 }];
  });
  return {
    hash,
    author,
    date,
    subject,
    paths: files.slice(0, pathsMax).map((file) => file.path),
    filesChanged: files.length,
    insertions: files.reduce((sum, file) => sum + file.added, 0),
    deletions: files.reduce((sum, file) => sum + file.removed, 0),
  };
}
