import type { Commit } from "./classify.ts";
import bundled from "./commits.json" with { type: "json" };
import { readHistory } from "./git.ts";

export interface CommitHistory {
  commits: Commit[];
  /** Where they come from, for the reader. */
  source: string;
}

/** The commits of `folder`, else the record that comes with svc: unless asked for, the longer of the two. */
export function historyOf(folder: string, limit: number, asked: boolean): CommitHistory {
  const kept = (bundled as Commit[]).slice(-limit);
  try {
    const commits = readHistory(folder, limit);
    if (asked || commits.length >= kept.length) return { commits, source: `git log of ${folder}` };
  } catch (error) {
    if (asked) throw error;
  }
  return { commits: kept, source: "svc's own history, from the record that comes with it" };
}
