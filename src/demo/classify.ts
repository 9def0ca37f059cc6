/** One commit as the demo emits it: the data of `commit.pushed`. */
export interface Commit {
  hash: string;
  author: string;
  /** RFC 3339. */
  date: string;
  subject: string;
  /** The first of them; `filesChanged` counts all. */
  paths: string[];
  filesChanged: number;
  insertions: number;
  deletions: number;
}

export interface Subject {
  /** `feat`, `fix`, …: the conventional type; undefined where the subject has none. */
  type?: string;
  scope?: string;
  breaking: boolean;
  /** Issues and pull requests it names: `#12`. */
  refs: string[];
}

export type CommitKind = "feature" | "fix" | "docs" | "test" | "build" | "code";
export type Size = "small" | "medium" | "large";

const kindOfType: Record<string, CommitKind> = {
  feat: "feature",
  feature: "feature",
  fix: "fix",
  bugfix: "fix",
  docs: "docs",
  doc: "docs",
  test: "test",
  tests: "test",
  build: "build",
  chore: "build",
  ci: "build",
};

const kindOfPath: [RegExp, CommitKind][] = [
  [/(^|\/)(tests?|__tests__|spec)\/|[._](test|spec)\.\w+$/, "test"],
  [/\.(md|mdx|rst|adoc|txt)$|(^|\/)docs?\//i, "docs"],
  [
    /(^|\/)(package(-lock)?\.json|bun\.lockb?|tsconfig.*\.json|Makefile|Dockerfile|go\.(mod|sum)|Cargo\.(toml|lock))$/,
    "build",
  ],
  [/(^|\/)\.[^/]+(\/|$)|\.(ya?ml|toml|lock)$/, "build"],
];

/** `fix(store)!: keep order (#12)` → fix, store, breaking, #12. */
export function parseSubject(subject: string): Subject {
  const [, type, scope, mark] = /^(\w+)(?:\(([^)]*)\))?(!)?:\s/.exec(subject) ?? [];
  return {
    ...(type !== undefined && { type: type.toLowerCase() }),
    ...(scope !== undefined && { scope }),
    breaking: mark === "!",
    refs: subject.match(/#\d+/g) ?? [],
  };
}

/** By its type where it has a known one, else by what most of its paths are. */
export function classify(commit: Commit, { type }: Subject): { kind: CommitKind; size: Size } {
  const lines = commit.insertions + commit.deletions;
  const size = lines <= 20 ? "small" : lines <= 200 ? "medium" : "large";
  const byType = type === undefined ? undefined : kindOfType[type];
  if (byType) return { kind: byType, size };
  const counts = new Map<CommitKind, number>();
  for (const path of commit.paths) {
    const kind = kindOfPath.find(([pattern]) => pattern.test(path))?.[1] ?? "code";
    counts.set(kind, (counts.get(kind) ?? 0) + 1);
  }
  const [most] = [...counts].sort((a, b) => b[1] - a[1]);
  return { kind: most?.[0] ?? "code", size };
}
