import type { Commit } from "./classify.ts";
import bundled from "./commits.json" with { type: "json" };
import { readHistory } from "./git.ts";

export interface CommitHistory {
  commits: Commit[];
  /** Where they come from, for the reader. */
  source: string;
}

/** Those of `folder`; the record that comes with svc where that is no repository, or has fewer and was not asked for. */
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
